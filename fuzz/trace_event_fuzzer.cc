// The packets of gVisor's trace session: any bytes give an event or an error, and the judge takes any event. Strings of
// an event are parts of its packet.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fault.h"
#include "runtime/oci/trace_judge.h"
#include "target.h"

using namespace caisson::runtime::oci;

CAISSON_FUZZ_TARGET(trace_event) {
  static const TraceJudge judge(*caisson::sandbox::FindSeccompProgram("balanced"), nullptr, {});
  const std::string_view packet(reinterpret_cast<const char*>(bytes), size);
  (void)DecodeTraceHandshake(packet);
  const caisson::Result<TraceEvent> event = DecodeTraceEvent(packet);
  if (!event) {
    CheckFault(event.error());
    return 0;
  }
  CAISSON_CHECK(event->path.size() + event->cwd.size() + event->directory.size() + event->address.size() <= size);
  (void)TraceJudge::IsRefusedFork(*event);
  if (const auto violation = judge.Judge(*event)) CAISSON_CHECK(!violation->reason.empty());
  return 0;
}
