// A module in the Common Intermediate Language. All foreign names stand in optional blocks, so the module loads on any
// base policy; a block whose names are missing there grants nothing. SELinux denies everything that no rule allows:
// capabilities, ptrace, mounts, raw and packet sockets, and every type not named.
#include <algorithm>

#include "policy/render.h"
#include "policy/render/container_terms.h"

namespace caisson::policy::render {

namespace {

constexpr char kWorkspaceType[] = "caisson_workspace_t";
constexpr char kScratchType[] = "caisson_scratch_t";

constexpr char kReadFile[] = "getattr open read lock ioctl map";
constexpr char kReadDirectory[] = "getattr open read search lock ioctl";
constexpr char kReadLink[] = "getattr read";
constexpr char kChangeFile[] =
    "getattr open read lock ioctl map append create link rename setattr unlink watch write execute execute_no_trans";
constexpr char kChangeDirectory[] =
    "getattr open read search lock ioctl add_name create link remove_name rename reparent rmdir setattr unlink watch "
    "write";
constexpr char kChangeOther[] = "getattr open read append create link rename setattr unlink write";
constexpr char kSocket[] =
    "accept append bind connect create getattr getopt ioctl listen lock read setattr setopt shutdown write";

// The labels that targeted policies give to the shown trees.
constexpr const char* kProgramTypes[] = {"bin_t",           "shell_exec_t",       "lib_t", "ld_so_t", "usr_t",
                                         "textrel_shlib_t", "container_ro_file_t"};
constexpr const char* kReadTypes[] = {"root_t", "etc_t", "ld_so_cache_t", "locale_t"};
constexpr const char* kKernelTypes[] = {"proc_t", "sysctl_t", "sysctl_kernel_t", "sysctl_vm_t",
                                        "sysctl_vm_overcommit_t"};
constexpr const char* kPortTypes[] = {"port_t", "ephemeral_port_t", "unreserved_port_t"};
// The domains that start workloads: an administrator's shell, or a container engine.
constexpr const char* kLaunchers[] = {"unconfined_t", "container_runtime_t"};

struct Device {
  const char* name;
  const char* type;
};
constexpr Device kDevices[] = {{"null", "null_device_t"},
                               {"full", "null_device_t"},
                               {"zero", "zero_device_t"},
                               {"random", "random_device_t"},
                               {"urandom", "urandom_device_t"}};

class Module {
 public:
  explicit Module(std::string domain) : domain_(std::move(domain)) {}

  void Comment(const std::string& text) { text_ += "\n; " + text + "\n"; }
  void Raw(const std::string& text) { text_ += std::string(indent_, ' ') + text + "\n"; }
  void Allow(const std::string& target, const std::string& kind, const std::string& permissions) {
    AllowFrom(domain_, target, kind, permissions);
  }
  void AllowFrom(const std::string& source, const std::string& target, const std::string& kind,
                 const std::string& permissions) {
    Raw("(allow " + source + " " + target + " (" + kind + " (" + permissions + ")))");
  }
  void Begin(const std::string& about) {
    Raw("(optional " + domain_ + "_" + about);
    indent_ = 4;
  }
  void End() {
    indent_ = 0;
    Raw(")");
  }
  void Read(const std::string& type, bool run) {
    Allow(type, "file", std::string(kReadFile) + (run ? " execute execute_no_trans" : ""));
    Allow(type, "dir", kReadDirectory);
    Allow(type, "lnk_file", kReadLink);
  }
  void Change(const std::string& type) {
    Allow(type, "file", kChangeFile);
    Allow(type, "dir", kChangeDirectory);
    for (const char* kind : {"lnk_file", "fifo_file", "sock_file"}) Allow(type, kind, kChangeOther);
  }
  const std::string& domain() const { return domain_; }
  std::string Take() { return std::move(text_); }

 private:
  std::string domain_;
  std::string text_;
  size_t indent_ = 0;
};

void DeclareTypes(Module& out) {
  out.Comment("Its own types. The mounts carry the labels of the last two (context=).");
  for (const std::string& type : {out.domain(), std::string(kWorkspaceType), std::string(kScratchType)})
    out.Raw("(type " + type + ")");
  const std::string domain = "(" + out.domain() + ")";
  const std::string files = std::string("(") + kWorkspaceType + " " + kScratchType + ")";
  for (const auto& [attribute, types] :
       {std::pair{"domain", domain}, std::pair{"mcs_constrained_type", domain}, std::pair{"file_type", files}}) {
    out.Begin(attribute);
    out.Raw(std::string("(typeattributeset ") + attribute + " " + types + ")");
    out.End();
  }
  for (const char* role : {"system_r", "unconfined_r"}) {
    out.Begin(role);
    out.Raw(std::string("(roletype ") + role + " " + out.domain() + ")");
    out.End();
  }
}

void WriteEntry(Module& out) {
  out.Comment("Being started, and ended, by those who may.");
  for (const char* launcher : kLaunchers) {
    out.Begin(std::string("from_") + launcher);
    out.AllowFrom(launcher, out.domain(), "process", "transition sigchld sigkill sigstop signal signull getattr");
    out.AllowFrom(launcher, out.domain(), "process2", "nnp_transition nosuid_transition");
    out.Allow(launcher, "process", "sigchld");
    out.Allow(launcher, "fd", "use");
    out.Allow(launcher, "fifo_file", "append getattr ioctl lock read write");
    out.End();
  }
}

void WriteFiles(const Profile& profile, Module& out) {
  out.Comment("Programs and libraries.");
  for (const char* type : kProgramTypes) {
    out.Begin(std::string("runs_") + type);
    out.Read(type, true);
    out.Allow(type, "file", "entrypoint");
    out.End();
  }
  for (const char* type : kReadTypes) {
    out.Begin(std::string("reads_") + type);
    out.Read(type, false);
    out.End();
  }
  out.Comment("The source under test, and the writable places.");
  if (profile.workspace == Access::kReadOnly)
    out.Read(kWorkspaceType, true);
  else
    out.Change(kWorkspaceType);
  out.Change(kScratchType);
  for (const char* type : {kWorkspaceType, kScratchType}) out.Allow(type, "file", "entrypoint");
  out.Begin("tmpfs");
  out.AllowFrom(kScratchType, "tmpfs_t", "filesystem", "associate");
  out.Raw("(typetransition " + out.domain() + " tmpfs_t file " + kScratchType + ")");
  out.End();
  out.Comment("Devices.");
  for (const Device& device : kDevices) {
    if (std::find(profile.devices.begin(), profile.devices.end(), device.name) == profile.devices.end()) continue;
    out.Begin(std::string("device_") + device.name);
    out.Allow(device.type, "chr_file", "append getattr ioctl lock map open read write");
    out.End();
  }
  out.Comment(profile.proc.pids_only ? "Of /proc, its own processes only (with themselves, below)."
                                     : "/proc. One type covers most of it, so the masks are the mounts' to make.");
  out.Begin("proc");
  out.Allow("proc_t", "dir", kReadDirectory);
  out.Allow("proc_t", "lnk_file", kReadLink);
  out.End();
  if (profile.proc.pids_only) return;
  for (const char* type : kKernelTypes) {
    out.Begin(std::string("reads_") + type);
    out.Allow(type, "dir", kReadDirectory);
    out.Allow(type, "file", "getattr open read");
    out.End();
  }
}

void WriteSelf(bool writable_code, Module& out) {
  out.Comment("Itself: processes, pipes, local sockets and shared memory.");
  out.Allow("self", "process",
            std::string("fork getattr getcap getpgid getsched getsession setpgid setrlimit setsched sigchld sigkill "
                        "signal signull sigstop") +
                (writable_code ? " execmem" : ""));
  out.Allow("self", "fd", "use");
  out.Allow("self", "dir", kReadDirectory);
  out.Allow("self", "file", "getattr open read");
  out.Allow("self", "lnk_file", kReadLink);
  out.Allow("self", "fifo_file", "append create getattr ioctl lock open read setattr write");
  out.Allow("self", "unix_stream_socket", std::string(kSocket) + " connectto");
  out.Allow("self", "unix_dgram_socket", std::string(kSocket) + " sendto");
  for (const char* kind : {"shm", "sem", "msgq"}) {
    out.Begin(kind);
    out.Allow("self", kind, "associate create destroy getattr read setattr unix_read unix_write write");
    out.End();
  }
}

void WriteNetwork(Module& out) {
  out.Comment("Sockets for loopback. Which addresses exist is the network namespace's to say.");
  for (const char* kind : {"tcp_socket", "udp_socket"}) {
    out.Begin(kind);
    out.Allow("self", kind, kSocket);
    out.Allow("node_t", kind, "node_bind");
    out.End();
    for (const char* port : kPortTypes) {
      out.Begin(std::string(kind) + "_" + port);
      out.Allow(port, kind, kind[0] == 't' ? "name_bind name_connect" : "name_bind");
      out.End();
    }
  }
  out.Begin("netlink_route_socket");
  out.Allow("self", "netlink_route_socket", "bind create getattr getopt nlmsg_read read setopt write");
  out.End();
}

}  // namespace

Result<std::string> SeLinux(const Profile& profile) {
  constexpr uint64_t kReadWriteExecute = 7, kPrivateAnonymous = 0x22;
  CAISSON_TRY(const bool writable_code,
              CallIsAllowed(profile, "mmap", {0, 4096, kReadWriteExecute, kPrivateAnonymous, 0, 0}));
  Module out("caisson_" + PlainName(profile, '_') + "_t");
  out.Raw("; The isolation profile " + profile.name + " for SELinux.");
  DeclareTypes(out);
  WriteEntry(out);
  WriteFiles(profile, out);
  WriteSelf(writable_code, out);
  WriteNetwork(out);
  return out.Take();
}

}  // namespace caisson::policy::render
