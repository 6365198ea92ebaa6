// The step that shows the certificates which programs inside trust. Runs: child after clone.
#include <fcntl.h>
#include <sys/mount.h>

#include <cerrno>
#include <string_view>

#include "sandbox/mount_fd.h"
#include "sandbox/setup.h"

namespace caisson::sandbox::steps {

namespace {

// Where the programs of Debian, of Red Hat and of Alpine look.
constexpr const char* kPlaces[] = {"etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt",
                                   "etc/ssl/cert.pem"};

// Whether the profile shows this place, or a tree above it, from the host. A missing file is not created there: it
// would be created on the host.
bool IsShownFromHost(const SetupContext& context, std::string_view place) {
  for (const std::string& shown : context.spec->etc_paths) {
    const std::string_view tree = std::string_view(shown).substr(1);
    if (place.substr(0, tree.size()) == tree && (place.size() == tree.size() || place[tree.size()] == '/')) return true;
  }
  return false;
}

}  // namespace

int ShowTrustBundle(SetupContext& context) {
  const std::string& bundle = context.spec->trust_bundle;
  if (bundle.empty()) return 0;
  const char* file = kTrustBundlePath + 1;
  const std::string_view directory(file, std::string_view(file).rfind('/'));
  if (!MakeDirectories(context.root_fd, directory)) return errno;
  if (WriteFileAt(context.root_fd, file, bundle.data(), bundle.size(), 0444) != 0) return errno;
  for (const char* place : kPlaces) {
    const bool may_make = !IsShownFromHost(context, place);
    const UniqueFd target = OpenMountPoint(context.root_fd, place, false, may_make);
    // A host that shows its own directory without such a file, or with a link in its place, keeps what it has: the
    // variables name the file of ours.
    if (!target && !may_make && (errno == ENOENT || errno == ELOOP || errno == ENOTDIR)) continue;
    if (!target) return errno;
    constexpr unsigned kAttributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    if (AttachAt(UniqueFd(CloneTree(context.root_fd, file, 0, kAttributes)), target) != 0) return errno;
  }
  return 0;
}

}  // namespace caisson::sandbox::steps
