#include "session/verify_record.h"

#include <fcntl.h>

#include "base/unique_fd.h"
#include "linux/files.h"

namespace caisson::session {

Result<RecordVerification> VerifyRecord(const std::string& events_path, const std::optional<audit::Head>& expected) {
  RecordVerification verification;
  CAISSON_TRY(verification.events, VerifySessionEvents(events_path, expected));
  if (verification.events.chain.finding) return verification;
  const size_t slash = events_path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : events_path.substr(0, slash + 1);
  CAISSON_TRY(const UniqueFd fd, linux_sys::Open(directory, O_PATH | O_DIRECTORY));
  const std::vector<TranscriptDigest>& checkpoints = verification.events.checkpoints;
  Result<TranscriptVerification> transcript =
      VerifyTranscript(fd.get(), kTranscriptName, checkpoints, verification.events.stopped);
  if (transcript) {
    verification.transcript = *std::move(transcript);
  } else if (!checkpoints.empty()) {
    // The events say that there was one.
    verification.transcript.emplace().finding = {1, "cannot be read: " + transcript.error().message};
  }
  return verification;
}

}  // namespace caisson::session
