// The root file system of a container, as an image that Caisson makes itself: the agent, the directories that mounts
// go to, and the links that the host has in its root (/bin on a merged /usr). The same agent and links give the same
// bytes, so the engine keeps one image for all runs and finds it by its digest.
#pragma once

#include <string>

#include "base/result.h"
#include "policy/profile.h"

namespace caisson::runtime::engine {

struct RootImage {
  std::string id;       // "sha256:…", of the image's configuration
  std::string archive;  // as `docker save` writes it
};

// `agent` is the path of the program.
Result<RootImage> MakeRootImage(const std::string& agent, const policy::Profile& profile);

}  // namespace caisson::runtime::engine
