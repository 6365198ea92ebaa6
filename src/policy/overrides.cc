#include "policy/overrides.h"

#include <unistd.h>

#include <algorithm>

#include "policy/syntax.h"

namespace caisson::policy {

namespace {

constexpr const char* kKinds[] = {"raise_limit",   "write_path",      "sensitive_path",  "allow_syscall",
                                  "allow_network", "allow_host_port", "allow_credential"};

struct Describer {
  std::string operator()(const RaiseLimit& grant) const {
    return std::string(grant.limit->name) + " to " + std::to_string(grant.value);
  }
  std::string operator()(const WritePath& grant) const { return grant.path; }
  std::string operator()(const SensitivePath& grant) const {
    return grant.path + ":" + kAccessNames[static_cast<size_t>(grant.access)];
  }
  std::string operator()(const AllowSyscall& grant) const { return grant.name; }
  std::string operator()(const AllowNetwork& grant) const { return grant.host; }
  std::string operator()(const AllowHostPort& grant) const { return std::to_string(grant.port); }
  std::string operator()(const AllowCredential& grant) const { return grant.name; }
};

}  // namespace

const char* KindOf(const Grant& grant) { return kKinds[grant.index()]; }

std::string Describe(const Grant& grant) { return std::visit(Describer(), grant); }

Grants::Grants(const std::vector<Override>& all, std::string_view role, std::string_view request_id, int64_t now) {
  for (const Override& one : all) {
    const bool mine = (!one.role.empty() && one.role == role) || (!one.request.empty() && one.request == request_id);
    if (mine && now < one.expires_at) held_.push_back(one);
  }
}

void Grants::AddFromCommandLine(Grant grant, const std::string& flag) {
  Override one;
  one.id = kCommandLineId;
  one.role = "operator";
  one.grant = std::move(grant);
  one.reason = "asked for with " + flag;
  one.expires = "end of the run";
  one.granted_by = "uid " + std::to_string(::getuid());
  held_.push_back(std::move(one));
}

template <typename Type, typename Covers>
bool Grants::Use(Covers covers) {
  const auto found = std::find_if(held_.begin(), held_.end(), [&](const Override& one) {
    const Type* grant = std::get_if<Type>(&one.grant);
    return grant != nullptr && covers(*grant);
  });
  if (found == held_.end()) return false;
  const bool noted = std::any_of(used_.begin(), used_.end(), [&](const Override& one) {
    return one.id == found->id && Describe(one.grant) == Describe(found->grant);
  });
  if (!noted) used_.push_back(*found);
  return true;
}

bool Grants::MayRaise(const LimitField& limit, int64_t value) {
  return Use<RaiseLimit>([&](const RaiseLimit& grant) { return grant.limit == &limit && value <= grant.value; });
}

bool Grants::MayWrite(std::string_view canonical_path) {
  return Use<WritePath>([&](const WritePath& grant) { return IsAtOrBelow(canonical_path, grant.path); });
}

bool Grants::MayShowSensitive(std::string_view canonical_path, Access access) {
  return Use<SensitivePath>(
      [&](const SensitivePath& grant) { return canonical_path == grant.path && access <= grant.access; });
}

bool Grants::MayReach(std::string_view host) {
  return Use<AllowNetwork>([&](const AllowNetwork& grant) { return host == grant.host; });
}

bool Grants::MayReachHostPort(uint16_t port) {
  return Use<AllowHostPort>([&](const AllowHostPort& grant) { return port == grant.port; });
}

bool Grants::MayUseCredential(std::string_view name) {
  return Use<AllowCredential>([&](const AllowCredential& grant) { return name == grant.name; });
}

std::vector<std::string> Grants::AllowedSyscalls() {
  std::vector<std::string> names;
  for (const Override& one : held_) {
    if (const auto* grant = std::get_if<AllowSyscall>(&one.grant)) {
      names.push_back(grant->name);
      Use<AllowSyscall>([&](const AllowSyscall& candidate) { return candidate.name == grant->name; });
    }
  }
  return names;
}

}  // namespace caisson::policy
