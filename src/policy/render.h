// The same profile in the words of other tools. Each is a pure function of the profile, in a file of its own below
// render/; what a tool cannot say is left to the walls it can, and docs/operator/lsm-profiles.md names the difference.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "policy/profile.h"

namespace caisson::policy {

// `format` is one of oci, seccomp, apparmor, selinux, docker, kubernetes. kInvalid names them when it is none.
Result<std::string> Render(std::string_view format, const Profile& profile);

namespace render {
Result<std::string> Oci(const Profile& profile);         // config.json of an OCI bundle
Result<std::string> Seccomp(const Profile& profile);     // the profile file Docker and Kubernetes take
Result<std::string> AppArmor(const Profile& profile);    // an AppArmor 3 profile
Result<std::string> SeLinux(const Profile& profile);     // a CIL module
Result<std::string> Docker(const Profile& profile);      // body of POST /containers/create
Result<std::string> Kubernetes(const Profile& profile);  // Job and NetworkPolicy, Pod Security "restricted"
}  // namespace render

}  // namespace caisson::policy
