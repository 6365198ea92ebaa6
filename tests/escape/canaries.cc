#include "escape/canaries.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "escape/process.h"

namespace caisson::escape {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSettings[] = {"tainted",      "hostname", "domainname",
                                     "core_pattern", "modprobe", "randomize_va_space"};

// Not with a stream, which throws if a file vanishes while it is read, as cgroups of other runs do.
std::string ReadAll(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char chunk[65536];
  for (ssize_t size; file && (size = ::read(file.get(), chunk, sizeof(chunk))) > 0;)
    text.append(chunk, static_cast<size_t>(size));
  return text;
}

std::string RandomName() {
  unsigned char bytes[16];
  const ssize_t size = ::getentropy(bytes, sizeof(bytes));
  std::string name;
  for (ssize_t i = 0; size == 0 && i < static_cast<ssize_t>(sizeof(bytes)); ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    name += {kDigits[bytes[i] >> 4], kDigits[bytes[i] & 15]};
  }
  return name;
}

// Ids and owners of the System V objects that could be ours: our own, or of a user that only sandboxes have.
std::set<std::string> IpcObjects() {
  constexpr unsigned long kFirstSandboxId = 1879048192;
  std::set<std::string> found;
  for (const char* kind : {"shm", "sem", "msg"}) {
    std::istringstream table(ReadAll(std::string("/proc/sysvipc/") + kind));
    std::string line;
    std::getline(table, line);
    std::istringstream names(line);
    const std::vector<std::string> columns(std::istream_iterator<std::string>(names), {});
    while (std::getline(table, line)) {
      std::istringstream values(line);
      std::string id, owner;
      for (const std::string& column : columns) {
        std::string value;
        values >> value;
        if (column == "shmid" || column == "semid" || column == "msqid") id = value;
        if (column == "uid") owner = value;
      }
      const unsigned long uid = std::strtoul(owner.c_str(), nullptr, 10);
      if (uid == ::geteuid() || uid >= kFirstSandboxId) found.insert(std::string(kind) + " " + id);
    }
  }
  return found;
}

// Our groups are named caisson-N in every hierarchy. The inode tells a new group from an old one of the same name. A
// suite that runs beside this one has its groups below one of its own (tests/support/own_machine).
std::map<std::string, ino_t> FindGroups() {
  std::map<std::string, ino_t> found;
  std::error_code error;
  for (auto it =
           fs::recursive_directory_iterator("/sys/fs/cgroup", fs::directory_options::skip_permission_denied, error);
       it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (error) break;
    if (it->path().filename().string().rfind("own-machine-", 0) == 0) it.disable_recursion_pending();
    if (!it->is_directory(error) || it->path().filename().string().rfind("caisson-", 0) != 0) continue;
    struct stat info {};
    if (::stat(it->path().c_str(), &info) == 0) found.emplace(it->path(), info.st_ino);
  }
  return found;
}

size_t OpenDescriptors() {
  std::error_code error;
  size_t count = 0;
  for (auto it = fs::directory_iterator("/proc/self/fd", error); it != fs::directory_iterator(); it.increment(error)) {
    ++count;
  }
  return count;
}

std::string Children() {
  // Zombies that only this process can reap are not leftovers.
  while (::waitpid(-1, nullptr, WNOHANG | __WALL) > 0) {
  }
  std::string names;
  std::istringstream children(ReadAll("/proc/self/task/" + std::to_string(::getpid()) + "/children"));
  for (std::string pid; children >> pid;) {
    std::string comm = ReadAll("/proc/" + pid + "/comm");
    if (!comm.empty() && comm.back() == '\n') comm.pop_back();
    names += " " + pid + " (" + comm + ")";
  }
  // Without CONFIG_PROC_CHILDREN the list is empty; waitpid still reports children.
  if (names.empty() && !(::waitid(P_ALL, 0, nullptr, WEXITED | WNOHANG | WNOWAIT | __WALL) < 0 && errno == ECHILD)) {
    names = " (unnamed)";
  }
  return names;
}

template <typename Address>
bool Listen(UniqueFd* fd, int domain, int type, Address& address, socklen_t size) {
  fd->Reset(::socket(domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return fd->valid() && ::bind(fd->get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
         (type == SOCK_DGRAM || ::listen(fd->get(), 8) == 0);
}

bool Touched(const UniqueFd& fd) {
  struct pollfd wait {
    fd.get(), POLLIN, 0
  };
  return fd.valid() && ::poll(&wait, 1, 0) > 0;
}

void Forget(const UniqueFd& fd) {
  char byte;
  for (;;) {
    const int peer = ::accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (peer >= 0) {
      ::close(peer);
    } else if (::recv(fd.get(), &byte, 1, MSG_DONTWAIT) < 0) {
      return;
    }
  }
}

}  // namespace

Canaries::Canaries(const std::string& directory, const std::vector<std::string>& programs)
    : file_(directory + "/canary"), abstract_name_("caisson-canary-" + RandomName()) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (const std::string& program : programs) programs_[program] = ReadAll(program);

  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(loopback);
  if (Listen(&tcp_, AF_INET, SOCK_STREAM, loopback, size) &&
      ::getsockname(tcp_.get(), reinterpret_cast<sockaddr*>(&loopback), &size) == 0) {
    port_ = ntohs(loopback.sin_port);
    Listen(&udp_, AF_INET, SOCK_DGRAM, loopback, sizeof(loopback));
  }
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  ::memcpy(name.sun_path + 1, abstract_name_.data(), abstract_name_.size());
  Listen(&unix_, AF_UNIX, SOCK_STREAM, name,
         static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + abstract_name_.size()));
}

void Canaries::Arm() {
  secret_ = "canary " + RandomName() + "\n";
  ::unlink(file_.c_str());
  const auto write = [&] {
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << secret_;
    // Readable by every user: only the walls protect it from the workload. Every mount except noatime updates an access
    // time that is older than the modification time.
    ::chmod(file_.c_str(), 0644);
    struct timespec times[2] = {{1, 0}, {2, 0}};
    ::utimensat(AT_FDCWD, file_.c_str(), times, 0);
    ::stat(file_.c_str(), &armed_);
  };
  write();
  ReadAll(file_);
  struct stat after {};
  ::stat(file_.c_str(), &after);
  reading_shows_ = after.st_atime != armed_.st_atime;
  write();
  for (const UniqueFd* listener : {&tcp_, &udp_, &unix_}) {
    if (listener->valid()) Forget(*listener);
  }
  for (const char* name : kSettings) settings_[name] = ReadAll(std::string("/proc/sys/kernel/") + name);
  mounts_ = ReadAll("/proc/self/mountinfo");
  ipc_ = IpcObjects();
  groups_ = FindGroups();
  descriptors_ = OpenDescriptors();
}

void Canaries::CheckFile(std::vector<std::string>* faults) const {
  struct stat now {};
  if (::stat(file_.c_str(), &now) != 0) {
    faults->push_back("the canary file is gone");
    return;
  }
  if (reading_shows_ && now.st_atime != armed_.st_atime) faults->push_back("the canary file was read");
  if (now.st_mtim.tv_sec != armed_.st_mtim.tv_sec || now.st_mode != armed_.st_mode || now.st_ino != armed_.st_ino ||
      now.st_uid != armed_.st_uid || now.st_nlink != armed_.st_nlink) {
    faults->push_back("the canary file's mode, owner, time or identity changed");
  }
  if (ReadAll(file_) != secret_) faults->push_back("the canary file's bytes changed");
}

std::vector<std::string> Canaries::Transient() const {
  std::vector<std::string> faults;
  if (const std::string children = Children(); !children.empty()) faults.push_back("processes were left:" + children);
  if (ReadAll("/proc/self/mountinfo") != mounts_) faults.push_back("the mount table changed");
  for (const std::string& object : IpcObjects()) {
    if (ipc_.count(object) == 0) faults.push_back("a System V object was left: " + object);
  }
  for (const auto& [path, inode] : FindGroups()) {
    const auto before = groups_.find(path);
    if (before != groups_.end() && before->second == inode) continue;
    // A group with processes belongs to another run: our own processes would appear as children.
    if (ReadAll(path + "/cgroup.procs").empty()) faults.push_back("a cgroup was left: " + path);
  }
  return faults;
}

std::vector<std::string> Canaries::Check(int patience_ms) {
  std::vector<std::string> faults;
  CheckFile(&faults);
  for (const auto& [path, bytes] : programs_) {
    if (ReadAll(path) != bytes) faults.push_back(path + " changed");
  }
  for (const auto& [name, value] : settings_) {
    if (ReadAll("/proc/sys/kernel/" + name) != value) faults.push_back("/proc/sys/kernel/" + name + " changed");
  }
  if (Touched(tcp_) || Touched(udp_)) faults.push_back("a process reached the host's loopback");
  if (Touched(unix_)) faults.push_back("a process reached the host's abstract socket");
  if (OpenDescriptors() != descriptors_) faults.push_back("the harness's own open files changed");
  const int64_t deadline = NowMs() + patience_ms;
  std::vector<std::string> left = Transient();
  while (!left.empty() && NowMs() < deadline) {
    ::poll(nullptr, 0, 10);
    // Only objects that existed all the time are ours.
    std::vector<std::string> still;
    const std::vector<std::string> now = Transient();
    for (const std::string& fault : left) {
      for (const std::string& other : now) {
        if (fault == other) still.push_back(fault);
      }
    }
    left = std::move(still);
  }
  faults.insert(faults.end(), left.begin(), left.end());
  return faults;
}

std::vector<std::pair<std::string, std::string>> Canaries::Environment(bool with_secret) const {
  std::vector<std::pair<std::string, std::string>> variables = {{"CAISSON_CANARY_FILE", file_},
                                                                {"CAISSON_CANARY_PORT", std::to_string(port_)},
                                                                {"CAISSON_CANARY_ABSTRACT", abstract_name_}};
  if (with_secret) variables.emplace_back("CAISSON_CANARY_SECRET", secret_);
  return variables;
}

}  // namespace caisson::escape
