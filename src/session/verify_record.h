// Checks the whole record of a session: its events, and its transcript against what the events say of it.
#pragma once

#include <optional>
#include <string>

#include "audit/hash_chain.h"
#include "base/result.h"
#include "session/session_events.h"
#include "session/transcript_reader.h"

namespace caisson::session {

inline constexpr char kTranscriptName[] = "transcript.cast";

struct RecordVerification {
  SessionVerification events;
  // Not checked if the events are broken: then it is not known what the transcript must be.
  std::optional<TranscriptVerification> transcript;

  bool intact() const { return !events.chain.finding && !(transcript && transcript->finding); }
};

// `events_path` is the file of the events; the transcript is beside it. `expected` is a head that the events once had,
// as session.json has it. An Error means only that the events cannot be read.
Result<RecordVerification> VerifyRecord(const std::string& events_path, const std::optional<audit::Head>& expected);

}  // namespace caisson::session
