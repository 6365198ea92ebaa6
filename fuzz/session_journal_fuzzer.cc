// The undo journal of an apply. An accepted one is written exactly as it was read, so nothing in it was ignored, and
// names only entries inside the project and its staging directory.
#include <string>
#include <string_view>

#include "base/check.h"
#include "fault.h"
#include "session/journal.h"
#include "session/record.h"
#include "target.h"

CAISSON_FUZZ_TARGET(session_journal) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto journal = caisson::session::ParseJournal(text);
  if (!journal) {
    CheckFault(journal.error());
    return 0;
  }
  CAISSON_CHECK(journal->staging.rfind(caisson::session::kStagingPrefix, 0) == 0);
  CAISSON_CHECK(journal->staging.find('/') == std::string::npos);
  for (const caisson::session::ApplyStep& step : journal->steps) {
    CAISSON_CHECK(step.old_mode <= 07777 && step.new_mode <= 07777);
    CAISSON_CHECK(caisson::session::DecodePath(caisson::session::EncodePath(step.path)) == step.path);
  }
  CAISSON_CHECK(caisson::session::JournalToText(*journal) == text);
  return 0;
}
