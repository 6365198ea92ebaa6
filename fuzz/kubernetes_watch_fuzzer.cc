// The bytes of a watch and of an attached stream of the Kubernetes API server: any bytes give events or one final
// error, and every pod that is read can be judged.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "runtime/kubernetes/attach.h"
#include "runtime/kubernetes/pod_state.h"
#include "target.h"

namespace {

using namespace caisson::runtime::kubernetes;

// Messages quote the cluster; they must be fit for a terminal and for a JSON answer.
void CheckFault(const caisson::Error& error) {
  CAISSON_CHECK(!error.message.empty() && error.message.size() < 32'768);
  CAISSON_CHECK(caisson::EscapeForTerminal(error.message) == error.message && caisson::IsValidUtf8(error.message));
}

void CheckPod(const PodState& pod) {
  if (const auto failure = FindStartFailure(pod)) CheckFault(*failure);
  if (const auto end = JudgeEnd(pod); !end) CheckFault(end.error());
  CAISSON_CHECK(FindDifference(pod.spec, pod.spec).empty());
}

}  // namespace

CAISSON_FUZZ_TARGET(kubernetes_watch) {
  const std::string_view all(reinterpret_cast<const char*>(bytes), size);
  WatchLines lines;
  // In two parts: a line may arrive in pieces.
  for (const std::string_view part : {all.substr(0, size / 2), all.substr(size / 2)}) {
    lines.Append(part);
    for (;;) {
      const auto line = lines.Next();
      if (!line || !*line) break;
      const auto event = ReadWatchLine(**line);
      if (!event)
        CheckFault(event.error());
      else if (event->kind == WatchEvent::Kind::kPod)
        CheckPod(event->pod);
    }
  }
  if (const auto list = ReadPodList(all)) {
    for (const PodState& pod : list->pods) CheckPod(pod);
  }
  if (const auto message = ReadAttachMessage(all)) CAISSON_CHECK(message->bytes.size() <= size);
  return 0;
}
