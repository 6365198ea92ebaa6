// The launcher's messages. The first byte chooses one, the second says how many descriptors come with it, the rest is
// its body. What is accepted has one spelling: encoded again it is the same bytes.
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
  const uint8_t* const data = bytes;
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  switch (static_cast<Kind>(data[0])) {
    case Kind::kStart:
      Check(DecodeStart(bytes, Descriptors(data[1] % 16U)), bytes);
      break;
    case Kind::kExecute:
      Check(DecodeExecute(bytes), bytes);
      break;
    case Kind::kCollect:
      Check(DecodeCollect(bytes), bytes);
      break;
    case Kind::kReady:
      Check(DecodeIsolation(bytes), bytes);
      break;
    case Kind::kOutput:
      Check(DecodeOutput(bytes), bytes);
      break;
    case Kind::kViolation:
      Check(DecodeViolation(bytes), bytes);
      break;
    case Kind::kOutcome:
      Check(DecodeOutcome(bytes), bytes);
      break;
    case Kind::kCollected:
      Check(DecodeCollected(bytes), bytes);
      break;
    case Kind::kError:
      (void)DecodeError(bytes);
      break;
    default:
      break;
  }
  return 0;
}
