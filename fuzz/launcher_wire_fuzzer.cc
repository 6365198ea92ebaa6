// The launcher's messages. The first byte chooses one, the second says how many descriptors come with it, the rest is
// its body. An accepted message has one spelling: it encodes to the same bytes.
#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "fault.h"
#include "launcher/messages.h"
#include "target.h"

namespace {

using caisson::Result;
using namespace caisson::launcher;

template <typename Message>
void Check(const Result<Message>& message, std::string_view bytes) {
  if (!message) return CheckFault(message.error());
  const Result<Encoded> again = Encode(*message);
  CAISSON_CHECK(again.has_value() && again->bytes == bytes);
}

std::vector<caisson::UniqueFd> Descriptors(size_t count) {
  std::vector<caisson::UniqueFd> fds;
  for (size_t i = 0; i < count; ++i) fds.emplace_back(::open("/dev/null", O_PATH | O_CLOEXEC));
  return fds;
}

}  // namespace

CAISSON_FUZZ_TARGET(launcher_wire) {
  if (size < 2) return 0;
  const std::string_view body(reinterpret_cast<const char*>(bytes) + 2, size - 2);
  switch (static_cast<Kind>(bytes[0])) {
    case Kind::kStart:
      Check(DecodeStart(body, Descriptors(bytes[1] % 16U)), body);
      break;
    case Kind::kExecute:
      Check(DecodeExecute(body, Descriptors(bytes[1] % 4U)), body);
      break;
    case Kind::kCollect:
      Check(DecodeCollect(body), body);
      break;
    case Kind::kReady:
      Check(DecodeIsolation(body), body);
      break;
    case Kind::kStatus:
      Check(DecodeStatus(body), body);
      break;
    case Kind::kOutput:
      Check(DecodeOutput(body), body);
      break;
    case Kind::kViolation:
      Check(DecodeViolation(body), body);
      break;
    case Kind::kOutcome:
      Check(DecodeOutcome(body), body);
      break;
    case Kind::kCollected:
      Check(DecodeCollected(body), body);
      break;
    case Kind::kError:
      (void)DecodeError(body);
      break;
    default:
      break;
  }
  return 0;
}
