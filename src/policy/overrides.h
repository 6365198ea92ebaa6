// Overrides: the only way past a profile. Each is of one of the types below, is granted by policy to a role or to one
// request, has a reason and an end, and whatever uses it is told to the result and the audit log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "policy/profile.h"

namespace caisson::policy {

struct RaiseLimit {
  const LimitField* limit = nullptr;
  int64_t value = 0;  // at most
};
struct WritePath {  // rw at or below it
  std::string path;
};
struct SensitivePath {  // a place that no ordinary rule can allow, named exactly
  std::string path;
  Access access = Access::kReadOnly;
};
struct AllowSyscall {
  std::string name;
};
struct AllowNetwork {
  std::string host;
};
using Grant = std::variant<RaiseLimit, WritePath, SensitivePath, AllowSyscall, AllowNetwork>;

// "raise_limit", …: the key in a policy file.
const char* KindOf(const Grant& grant);
// "memory_bytes to 2147483648".
std::string Describe(const Grant& grant);

// The id of what the person at the command line grants himself.
inline constexpr char kCommandLineId[] = "command-line";

struct Override {
  std::string id;
  std::string role;     // whose: a role, or
  std::string request;  // one request by its id
  Grant grant;
  std::string reason;
  std::string expires;     // RFC 3339
  int64_t expires_at = 0;  // the same in seconds since 1970
  std::string granted_by;
};

// The overrides that hold for one request now, and a record of those that were needed.
class Grants {
 public:
  Grants() = default;
  // `now` in seconds since 1970.
  Grants(const std::vector<Override>& all, std::string_view role, std::string_view request_id, int64_t now);

  // What the person at the command line grants himself, where policy trusts him to.
  void AddFromCommandLine(Grant grant, const std::string& flag);

  // Each says whether an override covers it, and notes the use.
  bool MayRaise(const LimitField& limit, int64_t value);
  bool MayWrite(std::string_view canonical_path);
  bool MayShowSensitive(std::string_view canonical_path, Access access);
  bool MayReach(std::string_view host);
  // A system call is not asked for: the override applies to whoever has it.
  std::vector<std::string> AllowedSyscalls();

  const std::vector<Override>& used() const { return used_; }

 private:
  template <typename Type, typename Covers>
  bool Use(Covers covers);

  std::vector<Override> held_;
  std::vector<Override> used_;
};

}  // namespace caisson::policy
