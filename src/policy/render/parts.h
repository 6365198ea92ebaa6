// What several renderings have in common: the parts of a profile in the terms containers are described in. Every number
// here is the profile's or below it, so that nothing rendered is looser than what the native tier builds.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/profile.h"

namespace caisson::policy::render {

// As inside the native tier.
inline constexpr int kInsideId = 1000;
inline constexpr char kHostname[] = "caisson";
// What to run is the caller's to fill in; this ends well and does nothing.
inline constexpr char kPlaceholderProgram[] = "/usr/bin/true";
// A digest nothing has: an image named by a tag could be another one tomorrow.
inline constexpr char kPlaceholderImage[] =
    "registry.invalid/caisson/workload@sha256:0000000000000000000000000000000000000000000000000000000000000000";
inline constexpr char kWorkspaceName[] = "caisson-workspace";

// A tmpfs. In the native tier all writable places share one file system under one cap; elsewhere each is its own, and
// the caps are divided so that together they are no more.
struct WritableArea {
  std::string path;
  int64_t bytes = 0;
  int64_t inodes = 0;
  const char* mode = "";
};
std::vector<WritableArea> WritableAreas(const Profile& profile);

// A limit per process, as the native tier sets it; `name` is spelled like "nofile".
struct ProcessLimit {
  const char* name;
  int64_t soft, hard;
};
std::array<ProcessLimit, 8> ProcessLimits(const Profile& profile);

// What is hidden below /proc. A profile that shows processes only gets every kernel-wide entry known, for tools that
// cannot mount /proc so.
std::vector<std::string> MaskedPaths(const Profile& profile);
// Mounted read-only even where the whole of /proc cannot be.
inline constexpr std::array<const char*, 5> kReadOnlyPaths = {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
                                                              "/proc/sysrq-trigger"};

// The filter in the shape of the OCI runtime specification and without order: see seccomp.cc.
Result<nlohmann::ordered_json> SeccompDocument(const Profile& profile);

// True when the filter lets the call through whatever its arguments are.
Result<bool> CallIsAllowed(const Profile& profile, std::string_view call);

// The profile's name in lower-case letters and digits, with `other` for everything else: what Kubernetes and CIL
// accept.
std::string PlainName(const Profile& profile, char other);

// JSON in which whatever fits stands on one line.
std::string PrintJson(const nlohmann::ordered_json& document);

}  // namespace caisson::policy::render
