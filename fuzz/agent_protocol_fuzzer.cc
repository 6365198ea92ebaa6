// The stream of frames of caisson-agent, in both directions: any bytes give frames or one final error, and an accepted
// message encodes to the same bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "agent/protocol.h"
#include "fault.h"
#include "target.h"

namespace {

using caisson::Result;
using namespace caisson::agent;

template <typename Message>
void Check(const Result<Message>& message, std::string_view body) {
  if (!message) return CheckFault(message.error());
  const Result<std::string> again = Encode(*message);
  CAISSON_CHECK(again.has_value() && *again == body);
}

void CheckFrame(const Frame& frame) {
  switch (frame.kind) {
    case Kind::kPlan:
      return Check(DecodePlan(frame.body), frame.body);
    case Kind::kFile:
      return Check(DecodeFilePiece(frame.body), frame.body);
    case Kind::kExecute:
      return Check(DecodeExecute(frame.body), frame.body);
    case Kind::kResize:
      return Check(DecodeResize(frame.body), frame.body);
    case Kind::kCollect:
      return Check(DecodeGlobs(frame.body), frame.body);
    case Kind::kHello:
    case Kind::kSignal:
    case Kind::kStop:
      (void)DecodeNumber(frame.body);
      return;
    case Kind::kReady:
      return Check(DecodeReady(frame.body), frame.body);
    case Kind::kOutput:
      return Check(DecodeOutput(frame.body), frame.body);
    case Kind::kViolation:
      return Check(DecodeViolation(frame.body), frame.body);
    case Kind::kOutcome:
      return Check(DecodeOutcome(frame.body), frame.body);
    case Kind::kCollected:
      return Check(DecodeCollected(frame.body), frame.body);
    case Kind::kError:
      (void)DecodeError(frame.body);
      return;
    default:
      return;
  }
}

}  // namespace

CAISSON_FUZZ_TARGET(agent_protocol) {
  FrameReader reader;
  // In two parts: a frame may arrive in pieces.
  const std::string_view all(reinterpret_cast<const char*>(bytes), size);
  for (const std::string_view part : {all.substr(0, size / 2), all.substr(size / 2)}) {
    reader.Append(part);
    for (;;) {
      const auto frame = reader.Next();
      if (!frame || !*frame) break;
      CheckFrame(**frame);
    }
  }
  return 0;
}
