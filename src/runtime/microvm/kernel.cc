#include "runtime/microvm/kernel.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

namespace caisson::runtime::microvm {

namespace {

// In the order in which they depend on each other, as a kernel's package has them.
constexpr const char* kModules[] = {
    "kernel/drivers/virtio/virtio_ring.ko",
    "kernel/drivers/virtio/virtio.ko",
    "kernel/drivers/virtio/virtio_pci_legacy_dev.ko",
    "kernel/drivers/virtio/virtio_pci_modern_dev.ko",
    "kernel/drivers/virtio/virtio_pci.ko",
    "kernel/drivers/char/virtio_console.ko",
    "kernel/fs/fuse/fuse.ko",
    "kernel/fs/fuse/virtiofs.ko",
    "kernel/fs/overlayfs/overlay.ko",
};

constexpr char kAdvice[] =
    "; fix: apt-get install linux-image-cloud-amd64, or ./dev microvm-kernel in Caisson's sources, which changes "
    "nothing "
    "below /boot";

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// SECURITY: the kernel is a wall. One that another user can change is none.
bool IsTrusted(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return false;
  return (info.st_uid == 0 || info.st_uid == ::geteuid()) && (info.st_mode & 022) == 0;
}

std::vector<std::string> FindModules(const std::string& directory) {
  std::vector<std::string> found;
  for (const char* const module : kModules) {
    for (const char* const suffix : {"", ".xz", ".zst"}) {
      const std::string path = directory + "/" + module + suffix;
      if (!Exists(path)) continue;
      found.push_back(path);
      break;
    }
  }
  return found;
}

std::optional<Kernel> KernelAt(const std::string& image, const std::string& modules) {
  if (!Exists(image)) return std::nullopt;
  return Kernel{image, FindModules(modules)};
}

std::optional<Kernel> KernelIn(const std::string& directory) {
  for (const char* const name : {"/vmlinux", "/vmlinuz"}) {
    if (std::optional<Kernel> kernel = KernelAt(directory + name, directory + "/modules")) return kernel;
  }
  return std::nullopt;
}

// Compares numbers by their value: 6.1.0-9 comes before 6.1.0-10.
bool IsOlder(const std::string& left, const std::string& right) {
  return ::strverscmp(left.c_str(), right.c_str()) < 0;
}

std::optional<Kernel> InstalledKernel() {
  constexpr std::string_view kPrefix = "vmlinuz-";
  std::vector<std::string> cloud, other;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/boot", error)) {
    const std::string name = entry.path().filename().string();
    if (name.compare(0, kPrefix.size(), kPrefix) != 0) continue;
    const std::string version = name.substr(kPrefix.size());
    (version.find("-cloud-") != std::string::npos ? cloud : other).push_back(version);
  }
  for (std::vector<std::string>* versions : {&cloud, &other}) {
    std::sort(versions->begin(), versions->end(), IsOlder);
    if (!versions->empty()) return KernelAt("/boot/vmlinuz-" + versions->back(), "/lib/modules/" + versions->back());
  }
  return std::nullopt;
}

std::optional<Kernel> Look() {
  if (const char* named = ::getenv("CAISSON_MICROVM"); named != nullptr && *named != '\0') return KernelIn(named);
  std::string cache;
  if (const char* given = ::getenv("XDG_CACHE_HOME"); given != nullptr && *given == '/')
    cache = given;
  else if (const char* home = ::getenv("HOME"); home != nullptr && *home == '/')
    cache = std::string(home) + "/.cache";
  if (!cache.empty()) {
    if (std::optional<Kernel> kernel = KernelIn(cache + "/caisson/microvm")) return kernel;
  }
  if (std::optional<Kernel> kernel = KernelIn("/usr/lib/caisson/microvm")) return kernel;
  return InstalledKernel();
}

}  // namespace

Result<Kernel> FindKernel() {
  std::optional<Kernel> kernel = Look();
  if (!kernel)
    return Error::Unsupported(std::string("runtime microvm: there is no kernel for virtual machines") + kAdvice);
  std::vector<std::string> paths = kernel->modules;
  paths.push_back(kernel->image);
  paths.push_back(kernel->image.substr(0, kernel->image.rfind('/')));
  for (const std::string& path : paths) {
    if (!IsTrusted(path))
      return Error::Denied("runtime microvm: " + path +
                           " must belong to you or root, and be writable by no other user");
  }
  return *std::move(kernel);
}

}  // namespace caisson::runtime::microvm
