// The parts of a profile that several renderings share, in the terms of container descriptions. Every number here
// equals the profile's or is lower, so no rendering is looser than what the native runtime builds.
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

// The same ids as inside the native runtime.
inline constexpr int kInsideId = 1000;
inline constexpr char kHostname[] = "caisson";
// The caller fills in the program to run; this placeholder succeeds and does nothing.
inline constexpr char kPlaceholderProgram[] = "/usr/bin/true";
// A digest that no image has: a tag could name another image tomorrow.
inline constexpr char kPlaceholderImage[] =
    "registry.invalid/caisson/workload@sha256:0000000000000000000000000000000000000000000000000000000000000000";
inline constexpr char kWorkspaceName[] = "caisson-workspace";

// A tmpfs. In the native runtime all writable places share one file system under one cap. Elsewhere each place is a
// file system of its own, and the cap is divided so that the sum does not exceed it.
struct WritableArea {
  std::string path;
  int64_t bytes = 0;
  int64_t inodes = 0;
  const char* mode = "";
};
std::vector<WritableArea> WritableAreas(const Profile& profile);

// A limit per process, as the native runtime sets it; `name` is spelled like "nofile".
struct ProcessLimit {
  const char* name;
  int64_t soft, hard;
};
std::array<ProcessLimit, 9> ProcessLimits(const Profile& profile);

// The hidden paths below /proc. For a profile that shows only processes, the list has every known kernel-wide entry,
// for tools that cannot mount /proc with subset=pid.
std::vector<std::string> MaskedPaths(const Profile& profile);
// Mounted read-only even where the whole of /proc cannot be.
inline constexpr std::array<const char*, 5> kReadOnlyPaths = {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
                                                              "/proc/sysrq-trigger"};

// The filter in the shape of the OCI runtime specification and without order: see seccomp.cc.
Result<nlohmann::ordered_json> SeccompDocument(const Profile& profile);

// True when the filter lets the call through with these arguments.
Result<bool> CallIsAllowed(const Profile& profile, std::string_view call, const std::array<uint64_t, 6>& arguments);

// The profile's name in lower-case letters and digits, with `other` for everything else: what Kubernetes and CIL
// accept.
std::string PlainName(const Profile& profile, char other);

// JSON with every value on one line where it fits.
std::string PrintJson(const nlohmann::ordered_json& document);

}  // namespace caisson::policy::render
