#include "policy/render.h"

#include "base/words.h"

namespace caisson::policy {

namespace {

struct Format {
  std::string_view name;
  Result<std::string> (*render)(const Profile&);
};
constexpr Format kFormats[] = {{"oci", render::Oci},           {"seccomp", render::Seccomp},
                               {"apparmor", render::AppArmor}, {"selinux", render::SeLinux},
                               {"docker", render::Docker},     {"kubernetes", render::Kubernetes}};

}  // namespace

Result<std::string> Render(std::string_view format, const Profile& profile) {
  std::string known;
  for (const Format& candidate : kFormats) {
    if (candidate.name == format) return candidate.render(profile);
    known += (known.empty() ? "" : ", ") + std::string(candidate.name);
  }
  return Error::Invalid("--format: " + Quoted(format) + " is none of " + known);
}

}  // namespace caisson::policy
