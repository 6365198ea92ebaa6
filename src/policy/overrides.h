// Overrides: the only way to exceed a profile. Each override has one of the types below, a reason and an expiry; policy
// grants it to a role or to one request. The result and the audit log record every use.
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
struct AllowHostPort {
  uint16_t port = 0;  // of the host's loopback
};
struct AllowCredential {
  std::string name;
};
using Grant =
    std::variant<RaiseLimit, WritePath, SensitivePath, AllowSyscall, AllowNetwork, AllowHostPort, AllowCredential>;

// "raise_limit", …: the key in a policy file.
const char* KindOf(const Grant& grant);
// "memory_bytes to 2147483648".
std::string Describe(const Grant& grant);

// The id of the grants that the user of the command line gives.
inline constexpr char kCommandLineId[] = "command-line";

struct Override {
  std::string id;
  std::string role;     // the role that holds it, or
  std::string request;  // one request by its id
  Grant grant;
  std::string reason;
  std::string expires;     // RFC 3339
  int64_t expires_at = 0;  // the same in seconds since 1970
  std::string granted_by;
};

// The overrides that hold for one request now, and a record of those that were used.
class Grants {
 public:
  Grants() = default;
  // `now` in seconds since 1970.
  Grants(const std::vector<Override>& all, std::string_view role, std::string_view request_id, int64_t now);

  // A grant that the user of the command line gives, where policy trusts the command line.
  void AddFromCommandLine(Grant grant, const std::string& flag);

  // Each returns whether an override covers the question, and records the use.
  bool MayRaise(const LimitField& limit, int64_t value);
  bool MayWrite(std::string_view canonical_path);
  bool MayShowSensitive(std::string_view canonical_path, Access access);
  bool MayReach(std::string_view host);
  bool MayReachHostPort(uint16_t port);
  bool MayUseCredential(std::string_view name);
  // A request does not ask for a system call: the override applies to every request that holds it.
  std::vector<std::string> AllowedSyscalls();

  const std::vector<Override>& used() const { return used_; }

 private:
  template <typename Type, typename Covers>
  bool Use(Covers covers);

  std::vector<Override> held_;
  std::vector<Override> used_;
};

}  // namespace caisson::policy
