#include "runtime/witnessed/root_files.h"

#include <sched.h>
#include <sys/stat.h>

#include <cerrno>

namespace caisson::runtime::witnessed {

Result<std::vector<RootFile>> MakeRootFiles(const policy::RunPlan& plan, uid_t inside_id) {
  const std::string id = std::to_string(inside_id);
  std::vector<RootFile> files = {
      {"/etc/passwd", "root:x:0:0:root:/:/usr/sbin/nologin\nuser:x:" + id + ":" + id +
                          ":user:/scratch:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"},
      {"/etc/group", "root:x:0:\nuser:x:" + id + ":\nnogroup:x:65534:\n"},
      {"/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"},
      {"/etc/resolv.conf", "nameserver 127.0.0.53\noptions timeout:1 attempts:1\n"},
      {"/etc/hosts",
       "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 caisson\n"
       "ff02::1 ip6-allnodes\nff02::2 ip6-allrouters\n"},
      {"/etc/hostname", "caisson"},
  };
  cpu_set_t available;
  const int64_t wanted = (plan.limits.cpu_millis + 999) / 1000;
  if (::sched_getaffinity(0, sizeof(available), &available) != 0) return Error::System(errno, "count the CPUs");
  if (wanted >= CPU_COUNT(&available) || plan.profile.proc.pids_only) return files;
  std::string text = "cpu  0 0 0 0 0 0 0 0 0 0\n";
  for (int64_t cpu = 0; cpu < wanted; ++cpu) text += "cpu" + std::to_string(cpu) + " 0 0 0 0 0 0 0 0 0 0\n";
  text += "intr 0\nctxt 0\nbtime 0\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n";
  files.push_back({"/proc/stat", std::move(text)});
  return files;
}

std::vector<std::string> FindOtherLoaders() {
  std::vector<std::string> found;
  for (const char* path : {"/usr/lib32", "/usr/libx32", "/usr/lib/i386-linux-gnu"}) {
    struct stat info {};
    if (::lstat(path, &info) == 0 && S_ISDIR(info.st_mode)) found.emplace_back(path);
  }
  return found;
}

}  // namespace caisson::runtime::witnessed
