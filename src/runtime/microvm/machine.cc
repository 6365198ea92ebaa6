#include "runtime/microvm/machine.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "agent/guest.h"
#include "linux/files.h"
#include "linux/syscalls.h"
#include "runtime/microvm/machine_init.h"
#include "sandbox/mount_fd.h"

namespace caisson::runtime::microvm {

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// QEMU, the translated code of an emulated processor, the file server, and the page tables of all of them.
constexpr int64_t kOverheadBytes = 768 * kMiB;
constexpr int64_t kMostTasks = 512;
constexpr size_t kMostLogBytes = 2000;

std::string FileOf(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

// A connected pair for the file server, which accepts connections, and QEMU. The address is one that the kernel chose,
// in a network namespace that nothing else has entered.
struct FileServerSockets {
  UniqueFd listener, connected;
};

Result<FileServerSockets> ConnectFileServer() {
  FileServerSockets sockets;
  sockets.listener = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockets.connected = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  socklen_t size = sizeof(address.sun_family);  // no name: the kernel chooses one
  auto* const generic = reinterpret_cast<struct sockaddr*>(&address);
  if (!sockets.listener || !sockets.connected || ::bind(sockets.listener.get(), generic, size) != 0 ||
      ::listen(sockets.listener.get(), 1) != 0)
    return Error::System(errno, "make a socket for the machine's files");
  size = sizeof(address);
  if (::getsockname(sockets.listener.get(), generic, &size) != 0 ||
      ::connect(sockets.connected.get(), generic, size) != 0)
    return Error::System(errno, "connect the machine to its files");
  return sockets;
}

// SECURITY: the sockets are made in a new network namespace, where no other process can connect first.
Result<FileServerSockets> MakeFileServerSockets() {
  CAISSON_TRY(const UniqueFd own, linux_sys::Open("/proc/self/ns/net", O_RDONLY));
  if (::unshare(CLONE_NEWNET) != 0) return Error::System(errno, "wall namespaces.network");
  Result<FileServerSockets> sockets = ConnectFileServer();
  if (::setns(own.get(), CLONE_NEWNET) != 0) ::abort();  // everything that follows would act on the wrong network
  return sockets;
}

// The device that KVM is reached by, for a user that the host's own node does not let in.
Result<UniqueFd> MakeKvmDevice() {
  UniqueFd devices(sandbox::NewFilesystem("tmpfs", {{"mode", "0755"}, {"size", "64k"}}, MOUNT_ATTR_NOSUID));
  if (!devices || ::mknodat(devices.get(), "kvm", S_IFCHR | 0666, ::makedev(10, 232)) != 0 ||
      ::fchmodat(devices.get(), "kvm", 0666, 0) != 0)
    return Error::System(errno, "make a device for KVM");
  return devices;
}

std::vector<std::string> QemuCommand(const MachinePlan& plan, int port_fd, int files_fd) {
  const std::string memory = std::to_string(plan.memory_bytes / kMiB) + "M";
  std::vector<std::string> command = {plan.qemu, "-nodefaults", "-no-user-config", "-no-reboot"};
  const auto add = [&](const char* option, std::string value) {
    command.emplace_back(option);
    command.push_back(std::move(value));
  };
  add("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
  add("-name", "caisson");
  add("-display", "none");
  add("-monitor", "none");
  add("-nic", "none");
  add("-machine", "pc,usb=off,memory-backend=memory");
  add("-accel", plan.kvm ? "kvm" : "tcg");
  add("-cpu", plan.kvm ? "host" : "max,la57=off");
  add("-smp", std::to_string(plan.cpus));
  add("-m", memory);
  add("-object", "memory-backend-memfd,id=memory,share=on,size=" + memory);
  add("-kernel", FileOf(plan.kernel.get()));
  add("-initrd", FileOf(plan.initramfs.get()));
  // An emulated processor leaks nothing by speculation; on a real one the kernel decides.
  add("-append", std::string("console=ttyS0 quiet loglevel=3 panic=-1 reboot=t ") +
                     (plan.kvm ? "" : "mitigations=off ") + "-- guest");
  add("-chardev", "file,id=console,append=on,path=/proc/self/fd/2");
  add("-serial", "chardev:console");
  add("-device", "virtio-serial-pci");
  add("-chardev", "socket,id=port,fd=" + std::to_string(port_fd));
  add("-device", std::string("virtserialport,chardev=port,name=") + agent::kPortName);
  add("-chardev", "socket,id=files,fd=" + std::to_string(files_fd));
  add("-device", std::string("vhost-user-fs-pci,chardev=files,tag=") + agent::kShareTag);
  return command;
}

std::vector<std::string> FileServerCommand(const MachinePlan& plan, int listener_fd) {
  return {plan.file_server, "-f", "--fd=" + std::to_string(listener_fd), "-o",
          std::string("source=") + kShare + ",sandbox=namespace,cache=auto"};
}

Status WriteIdMaps(pid_t pid, uid_t first) {
  const std::string map = "0 " + std::to_string(first) + " " + std::to_string(sandbox::Slot::kIdsPerSlot);
  for (const char* const file : {"/uid_map", "/gid_map"})
    CAISSON_TRY_VOID(linux_sys::WriteSmallFile(AT_FDCWD, ("/proc/" + std::to_string(pid) + file).c_str(), map));
  return {};
}

}  // namespace

Result<std::unique_ptr<Machine>> Machine::Start(MachinePlan plan, sandbox::HostResources resources, UniqueFd port) {
  std::unique_ptr<Machine> machine(new Machine(std::move(resources)));
  CAISSON_TRY_VOID(machine->Create(std::move(plan), std::move(port)));
  return machine;
}

Status Machine::Create(MachinePlan plan, UniqueFd port) {
  CAISSON_TRY(log_, linux_sys::OpenUnnamed(""));
  if (::fcntl(log_.get(), F_SETFL, O_APPEND) != 0) return Error::System(errno, "make the machine's log");
  CAISSON_TRY(const FileServerSockets sockets, MakeFileServerSockets());
  UniqueFd kvm;
  if (plan.kvm) {
    CAISSON_TRY(kvm, MakeKvmDevice());
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::System(errno, "make a pipe");
  const UniqueFd go_read(ends[0]);
  alive_ = UniqueFd(ends[1]);
  const ProgramArguments qemu(QemuCommand(plan, port.get(), sockets.connected.get()));
  const ProgramArguments file_server(FileServerCommand(plan, sockets.listener.get()));
  MachineInit init;
  init.plan = &plan;
  init.qemu = &qemu;
  init.file_server = &file_server;
  init.go_fd = go_read.get();
  init.log_fd = log_.get();
  init.kvm_fd = kvm.get();
  init.qemu_fds = {plan.kernel.get(), plan.initramfs.get(), port.get(), sockets.connected.get()};
  init.file_server_fds = {sockets.listener.get()};
  struct clone_args args {};
  int process = -1;
  args.flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
               CLONE_NEWCGROUP | CLONE_PIDFD;
  args.pidfd = reinterpret_cast<uint64_t>(&process);
  args.exit_signal = SIGCHLD;
  if (resources_.group) {
    sandbox::Limits limits;
    limits.memory_bytes = plan.memory_bytes + kOverheadBytes;
    limits.processes = kMostTasks;
    limits.cpu_millis = plan.cpus * 1000 + 1000;  // QEMU's other threads and the file server
    Status applied = resources_.group->Apply(limits, true);
    if (!applied) return std::move(applied).error().In("wall cgroup");
    init.task_fds = resources_.group->task_fds();
    if (resources_.group->clone_into_fd() >= 0) {
      args.flags |= CLONE_INTO_CGROUP;
      args.cgroup = static_cast<uint64_t>(resources_.group->clone_into_fd());
    }
  }
  pid_ = linux_sys::Clone3(&args);
  if (pid_ < 0) return Error::System(errno, "wall namespaces: clone3");
  if (pid_ == 0) {
    alive_.Reset();
    RunMachineInit(init);
  }
  process_ = UniqueFd(process);
  CAISSON_TRY_VOID(WriteIdMaps(pid_, resources_.slot->first_host_id()));
  if (::write(alive_.get(), "g", 1) != 1) return Error::System(errno, "start the machine");
  return {};
}

Machine::~Machine() { Kill(); }

void Machine::Kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);  // not reaped yet, so the number is its own
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  process_.Reset();
}

std::string Machine::ReadLog() const {
  struct stat info {};
  if (!log_ || ::fstat(log_.get(), &info) != 0 || info.st_size == 0) return "";
  const auto most = static_cast<int64_t>(kMostLogBytes);
  const int64_t from = std::max<int64_t>(info.st_size - most, 0);
  const Result<std::string> text = linux_sys::ReadAt(log_.get(), from, info.st_size - from);
  if (!text) return "";
  std::string line = *text;
  // One line for the error message; what a machine's console says is hostile.
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = ' ';
  }
  return line;
}

}  // namespace caisson::runtime::microvm
