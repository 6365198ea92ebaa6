// The steps that build the file-system tree. Runs: child after clone.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linux/syscalls.h"
#include "sandbox/mount_fd.h"
#include "sandbox/mutation.h"
#include "sandbox/setup.h"

namespace caisson::sandbox::steps {

namespace {

constexpr char kMaxTerminals[] = "64";
constexpr unsigned kReadOnlyTree = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

// Shows the host's `path` read-only at the same place inside. A path that the host lacks is left out. `shown` are the
// paths before it in the same list: a missing mount point below one of them is not created, because it would be created
// on the host.
int ShowHostPath(SetupContext& context, const std::string& path, std::span<const std::string> shown) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return errno == ENOENT ? 0 : errno;
  const char* inside = path.c_str() + 1;
  if (S_ISLNK(info.st_mode)) {
    char target[PATH_MAX];
    const ssize_t length = ::readlink(path.c_str(), target, sizeof(target) - 1);
    if (length < 0) return errno;
    target[length] = '\0';
    const size_t slash = path.rfind('/');
    if (slash == 0) return ::symlinkat(target, context.root_fd, inside) == 0 ? 0 : errno;
    const UniqueFd parent = MakeDirectories(context.root_fd, std::string_view(path).substr(1, slash - 1));
    return parent && ::symlinkat(target, parent.get(), path.c_str() + slash + 1) == 0 ? 0 : errno;
  }
  const bool may_make = std::none_of(shown.begin(), shown.end(), [&path](const std::string& tree) {
    return path.size() > tree.size() && path[tree.size()] == '/' && path.compare(0, tree.size(), tree) == 0;
  });
  const UniqueFd place = OpenMountPoint(context.root_fd, inside, S_ISDIR(info.st_mode), may_make);
  if (!place) return errno;
  const unsigned attributes = CAISSON_LEFT_OUT("read_only_system") ? 0 : kReadOnlyTree;
  return AttachAt(UniqueFd(CloneTree(AT_FDCWD, path.c_str(), AT_RECURSIVE, attributes)), place) == 0 ? 0 : errno;
}

int ShowHostPaths(SetupContext& context, const std::vector<std::string>& paths) {
  for (size_t i = 0; i < paths.size(); ++i) {
    if (const int error = ShowHostPath(context, paths[i], {paths.data(), i}); error != 0) return error;
  }
  return 0;
}

// Hides `path` below /proc behind `cover`. A path that this kernel lacks needs no hiding.
int Mask(const SetupContext& context, int proc, const std::string& path, const char* cover, unsigned attributes) {
  const UniqueFd place = OpenBeneath(proc, path.c_str(), O_PATH);
  if (!place) return errno == ENOENT ? 0 : errno;
  return AttachAt(UniqueFd(CloneTree(context.root_fd, cover, 0, attributes)), place) == 0 ? 0 : errno;
}

// Programs count CPUs in /proc/stat when there is no /sys. They must find the number that they may use.
int WriteCpuStatistics(SetupContext& context) {
  char text[16384];
  int size = ::snprintf(text, sizeof(text), "cpu  0 0 0 0 0 0 0 0 0 0\n");
  const int count = CPU_COUNT(&context.cpus);
  for (int cpu = 0; cpu < count && size < static_cast<int>(sizeof(text)) - 256; ++cpu) {
    size += ::snprintf(text + size, sizeof(text) - static_cast<size_t>(size), "cpu%d 0 0 0 0 0 0 0 0 0 0\n", cpu);
  }
  size += ::snprintf(text + size, sizeof(text) - static_cast<size_t>(size),
                     "intr 0\nctxt 0\nbtime 0\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n");
  return WriteFileAt(context.root_fd, ".cover/stat", text, static_cast<size_t>(size), 0444) == 0 ? 0 : errno;
}

int MaskProc(SetupContext& context, int proc) {
  if (CAISSON_LEFT_OUT("proc_masks")) return 0;
  for (const std::string& path : context.spec->masked_files) {
    // The device is already mounted read-only, and so are its clones.
    if (const int error = Mask(context, proc, path, "dev/null", 0); error != 0) return error;
  }
  constexpr unsigned kCover = kReadOnlyTree | MOUNT_ATTR_NOEXEC;
  for (const std::string& path : context.spec->masked_directories) {
    if (const int error = Mask(context, proc, path, ".cover/empty", kCover); error != 0) return error;
  }
  if (!context.restrict_cpus || context.spec->proc_pids_only) return 0;
  if (const int error = WriteCpuStatistics(context); error != 0) return error;
  return Mask(context, proc, "stat", ".cover/stat", kCover);
}

// The sources of the covers are no longer needed: the clones keep them alive.
int RemoveCovers(const SetupContext& context) {
  if (::unlinkat(context.root_fd, ".cover/stat", 0) != 0 && errno != ENOENT) return errno;
  if (::unlinkat(context.root_fd, ".cover/empty", AT_REMOVEDIR) != 0) return errno;
  return ::unlinkat(context.root_fd, ".cover", AT_REMOVEDIR) == 0 ? 0 : errno;
}

}  // namespace

int DetachPropagation(SetupContext&) {
  return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 ? 0 : errno;
}

int MountRoot(SetupContext& context) {
  context.root_fd = NewFilesystem("tmpfs", {{"size", "2m"}, {"nr_inodes", "1024"}, {"mode", "0755"}},
                                  MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
  if (context.root_fd < 0) return errno;
  // A detached tree cannot be mounted on before Linux 6.15, so it is attached at once: on top of "/", which every host
  // has. The root of this process is still the old one below it, so host paths keep resolving until the pivot.
  if (::move_mount(context.root_fd, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) != 0) return errno;
  for (const char* directory :
       {"etc", "dev", "proc", "scratch", "tmp", "workspace", "var", "var/cache", "run", ".cover", ".cover/empty"}) {
    if (::mkdirat(context.root_fd, directory, 0755) != 0) return errno;
  }
  if (::symlinkat("/tmp", context.root_fd, "var/tmp") != 0) return errno;
  return 0;
}

int BindSystemDirectories(SetupContext& context) {
  if (const int error = ShowHostPaths(context, context.spec->system_paths); error != 0) return error;
  return CoverOtherLoaders(context);
}

int CoverOtherLoaders(SetupContext& context) {
  // The filter ends a process of another architecture with its first call. Tools such as ldd execute every loader that
  // they find executable, so the loaders for 32 bits are shown without that right. Compilers still read the libraries.
  for (const char* libraries : {"usr/lib32", "usr/libx32", "usr/lib/i386-linux-gnu"}) {
    const UniqueFd place = OpenBeneath(context.root_fd, libraries, O_PATH | O_DIRECTORY);
    if (!place && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) continue;
    if (!place) return errno;
    UniqueFd shown(CloneTree(context.root_fd, libraries, 0, kReadOnlyTree | MOUNT_ATTR_NOEXEC));
    if (!shown || AttachAt(std::move(shown), place) != 0) return errno;
  }
  return 0;
}

int SynthesizeEtc(SetupContext& context) {
  static constexpr char kPasswd[] =
      "root:x:0:0:root:/:/usr/sbin/nologin\n"
      "user:x:1000:1000:user:/scratch:/bin/sh\n"
      "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n";
  static constexpr char kGroup[] = "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n";
  static constexpr char kNsswitch[] =
      "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n";
  // Only the supervisor answers, and it answers at once.
  static constexpr char kResolv[] = "nameserver 127.0.0.53\noptions timeout:1 attempts:1\n";
  struct File {
    const char* path;
    const char* text;
    size_t size;
  };
  // The supervisor answers the other forms of these names (sandbox/dns.h).
  char hosts[512];
  const char* hostname = context.spec->hostname.c_str();
  const int hosts_size = ::snprintf(hosts, sizeof(hosts),
                                    "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 %s\n"
                                    "ff02::1 ip6-allnodes\nff02::2 ip6-allrouters\n",
                                    hostname);
  if (hosts_size < 0 || static_cast<size_t>(hosts_size) >= sizeof(hosts)) return ENAMETOOLONG;
  const File files[] = {
      {"etc/passwd", kPasswd, sizeof(kPasswd) - 1},
      {"etc/group", kGroup, sizeof(kGroup) - 1},
      {"etc/nsswitch.conf", kNsswitch, sizeof(kNsswitch) - 1},
      {"etc/resolv.conf", kResolv, sizeof(kResolv) - 1},
      {"etc/hosts", hosts, static_cast<size_t>(hosts_size)},
      {"etc/hostname", hostname, ::strlen(hostname)},
  };
  for (const File& file : files) {
    if (WriteFileAt(context.root_fd, file.path, file.text, file.size, 0644) != 0) return errno;
  }
  return ShowHostPaths(context, context.spec->etc_paths);
}

int MountScratch(SetupContext& context) {
  char size[32], inodes[32];
  const long long times = CAISSON_LEFT_OUT("scratch_caps") ? 1000 : 1;
  ::snprintf(size, sizeof(size), "%lld", times * context.spec->limits.scratch_bytes);
  ::snprintf(inodes, sizeof(inodes), "%lld", times * context.spec->limits.scratch_inodes);
  const int fs = NewFilesystem("tmpfs", {{"size", size}, {"nr_inodes", inodes}, {"mode", "0755"}},
                               MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
  if (fs < 0) return errno;
  if (::mkdirat(fs, "home", 0755) != 0 || ::mkdirat(fs, "tmp", 0755) != 0 || ::mkdirat(fs, "shm", 0755) != 0)
    return errno;
  if (::fchmodat(fs, "tmp", 01777, 0) != 0 || ::fchmodat(fs, "shm", 01777, 0) != 0) return errno;
  if (::mkdirat(context.root_fd, "dev/shm", 0755) != 0) return errno;
  // One file system under one cap, visible in three places. The whole of it is attached first because only attached
  // mounts can be cloned; /scratch then covers it.
  if (::move_mount(fs, "", context.root_fd, "scratch", MOVE_MOUNT_F_EMPTY_PATH) != 0) return errno;
  context.scratch_fs_fd = fs;
  struct Place {
    bool writable;
    const char* part;
    const char* target;
  };
  for (const auto& [writable, part, target] :
       {Place{context.spec->writable_tmp, "tmp", "tmp"}, Place{context.spec->writable_shm, "shm", "dev/shm"},
        Place{true, "home", "scratch"}}) {
    if (!writable) continue;  // an empty directory of the read-only root remains
    if (AttachAndClose(CloneTree(fs, part, 0, 0), context.root_fd, target) != 0) {
      return errno;
    }
  }
  context.scratch_fd = ::openat(context.root_fd, "scratch", O_PATH | O_DIRECTORY | O_CLOEXEC);
  return context.scratch_fd < 0 ? errno : 0;
}

int MountDevices(SetupContext& context) {
  const auto show = [&context](const char* name) {
    char path[64];
    const int length = ::snprintf(path, sizeof(path), "/dev/%s", name);
    if (length < 0 || static_cast<size_t>(length) >= sizeof(path)) return ENAMETOOLONG;
    if (MakeMountPointFile(context.root_fd, path + 1) != 0) return errno;
    const int tree = CloneTree(AT_FDCWD, path, 0, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    return AttachAndClose(tree, context.root_fd, path + 1) == 0 ? 0 : errno;
  };
  for (const std::string& name : context.spec->devices) {
    if (const int error = show(name.c_str()); error != 0) return error;
  }
  // A program that opens its controlling terminal uses this name. A program without one gets ENXIO.
  if (const int error = show("tty"); error != 0) return error;
  for (const auto& [target, link] :
       {std::pair{"/proc/self/fd", "dev/fd"}, std::pair{"/proc/self/fd/0", "dev/stdin"},
        std::pair{"/proc/self/fd/1", "dev/stdout"}, std::pair{"/proc/self/fd/2", "dev/stderr"}}) {
    if (::symlinkat(target, context.root_fd, link) != 0) return errno;
  }
  // A devpts of its own: terminals inside are not the host's, and a terminal's descriptors leave the sandbox only
  // through the supervisor. The host's kernel has some thousands of terminals in total, so each sandbox gets a few.
  // Read-only concerns names and modes only: terminals can still be created and written.
  if (::mkdirat(context.root_fd, "dev/pts", 0755) != 0) return errno;
  const int pts = NewFilesystem("devpts", {{"ptmxmode", "0666"}, {"mode", "0620"}, {"max", kMaxTerminals}},
                                MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY);
  if (AttachAndClose(pts, context.root_fd, "dev/pts") != 0) return errno;
  return ::symlinkat("pts/ptmx", context.root_fd, "dev/ptmx") == 0 ? 0 : errno;
}

int MountProc(SetupContext& context) {
#ifdef CAISSON_MUTATIONS
  if (CAISSON_LEFT_OUT("pid_namespace")) {
    // Only the host's own mount of /proc shows the host's processes.
    if (AttachAndClose(CloneTree(AT_FDCWD, "/proc", AT_RECURSIVE, 0), context.root_fd, "proc") != 0) return errno;
    context.proc_fd = ::openat(context.root_fd, "proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return context.proc_fd < 0 ? errno : RemoveCovers(context);
  }
#endif
  constexpr unsigned kAttributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  int proc = NewFilesystem("proc", {}, kAttributes);
  if (proc < 0) return errno;
  // Without its own user namespace the sandbox has no counters of its own to cap.
  if (!CAISSON_LEFT_OUT("user_namespace")) {
    if (const int error = CapUserCounters(proc); error != 0) return error;
  }
  if (const int error = OpenSegmentList(proc, context); error != 0) return error;
  struct mount_attr read_only {};
  read_only.attr_set = CAISSON_LEFT_OUT("read_only_proc") ? 0 : MOUNT_ATTR_RDONLY;
  if (context.spec->proc_pids_only) {
    // The supervisor keeps the mount that hides nothing: hidepid would also hide from the supervisor the processes that
    // it may not trace, and it cannot count what it does not see. PID 1 closes its copy before the first command.
    if (::mount_setattr(proc, "", AT_EMPTY_PATH, &read_only, sizeof(read_only)) != 0) return errno;
    context.proc_fd = proc;
    proc = NewFilesystem("proc", {{"subset", "pid"}, {"hidepid", "invisible"}}, kAttributes);
    if (proc < 0) return errno;
  }
  if (::mount_setattr(proc, "", AT_EMPTY_PATH, &read_only, sizeof(read_only)) != 0) return errno;
  if (AttachAndClose(proc, context.root_fd, "proc") != 0) return errno;
  const int shown = ::openat(context.root_fd, "proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (shown < 0) return errno;
  if (const int error = MaskProc(context, shown); error != 0) return error;
  if (context.proc_fd < 0) {
    context.proc_fd = shown;
  } else {
    ::close(shown);
  }
  return RemoveCovers(context);
}

int PivotIntoRoot(SetupContext& context) {
  if (::fchdir(context.root_fd) != 0) return errno;
  // "." for both arguments stacks the old root on the new one, where it can be detached without a directory for it.
  if (linux_sys::PivotRoot(".", ".") != 0) return errno;
  if (CAISSON_LEFT_OUT("old_root")) {
    if (::mkdir("/run/host", 0755) != 0) return errno;
    if (::mount(".", "/run/host", nullptr, MS_BIND | MS_REC, nullptr) != 0) return errno;
  }
  if (::umount2(".", MNT_DETACH) != 0) return errno;
  if (::chdir("/") != 0) return errno;
  context.stdin_null_fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  return context.stdin_null_fd < 0 ? errno : 0;
}

int SealRoot(SetupContext& context) {
  struct mount_attr attr {};
  attr.attr_set = MOUNT_ATTR_RDONLY;
  if (CAISSON_LEFT_OUT("read_only_root")) attr.attr_set = 0;
  return ::mount_setattr(context.root_fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) == 0 ? 0 : errno;
}

}  // namespace caisson::sandbox::steps
