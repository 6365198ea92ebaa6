// The undo journal of Apply: written whole before the first swap, so that the state of each step can be told from the
// identities of the entries alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "session/tree.h"

namespace caisson::session {

inline constexpr char kJournalName[] = "apply.journal";
inline constexpr char kStagingPrefix[] = ".caisson-apply-";  // followed by 32 hex digits

// What an entry is, also after it was renamed. A number can be used again, so the other times count too.
struct Identity {
  uint64_t device = 0, inode = 0;
  int64_t birth_ns = 0;
  int64_t size = 0, mtime_ns = 0;  // 0 for a directory, whose times change with its entries

  static Identity Of(const EntryStat& stat);
  bool operator==(const Identity&) const = default;
};

struct ApplyStep {
  enum class Kind : uint8_t {
    kReplace,  // the prepared entry and the host's change places
    kAdd,      // the prepared entry moves to a free name
    kRemove,   // the host's entry moves to the staging directory
    kMode,     // the host's entry gets another mode
  };
  Kind kind = Kind::kReplace;
  std::string path;
  uint64_t slot = 0;                  // its name in the staging directory
  Identity host;                      // of the host's entry, as judged; kAdd has none
  Identity prepared;                  // of the new entry; for kRemove and kMode, of the host's
  mode_t old_mode = 0, new_mode = 0;  // kMode
};

struct Journal {
  enum class State : uint8_t { kPreparing, kSwapping, kCommitted, kUndone };
  State state = State::kPreparing;
  uint64_t project_device = 0, project_inode = 0;
  std::string staging;
  int64_t swapped_from_ns = 0;  // a time on the project's clock after everything was prepared and before the first swap
  std::vector<ApplyStep> steps;
};

std::string JournalToText(const Journal& journal);
Result<Journal> ParseJournal(std::string_view text);

}  // namespace caisson::session
