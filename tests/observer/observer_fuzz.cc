// Makes random observed system calls, with arguments in every kind of memory, and counts the calls that the kernel
// refused. observer_fuzz_test.py runs it in sandboxes and checks that the result contains every call that a wall
// refused.
//
//   observer_fuzz MODE SEED CALLS
//
// MODE "strict": targets inside and outside the writable places. "racing": the same while another thread changes the
// arguments. "benign": writable places and loopback only, in readable memory, so nothing may be reported. Prints one
// line: refused_writes=N refused_peers=N.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

enum class Mode { kStrict, kRacing, kBenign };

Mode mode = Mode::kStrict;
std::mt19937 random_bits;  // NOLINT(cert-msc51-cpp): seeded from the command line, so that a run can be repeated
long refused_writes = 0, refused_peers = 0;

unsigned Pick(unsigned count) { return std::uniform_int_distribution<unsigned>(0, count - 1)(random_bits); }
bool Chance(unsigned percent) { return Pick(100) < percent; }

constexpr size_t kPage = 4096;

// Three pages that are released when the call is over.
class Memory {
 public:
  Memory() : base_(static_cast<char*>(Map(3 * kPage))) {}
  ~Memory() {
    ::munmap(base_, kPage);
    if (!hole_) ::munmap(base_ + kPage, kPage);  // otherwise another mapping may use it by now
    ::munmap(base_ + 2 * kPage, kPage);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Puts the bytes at a random place and removes rights from the pages.
  void* Place(const void* bytes, size_t size) {
    const size_t at = Chance(40) ? kPage - Pick(static_cast<unsigned>(std::min(size, kPage)) + 1)  // across a boundary
                                 : Pick(static_cast<unsigned>(kPage));
    std::memcpy(base_ + at, bytes, size);
    const unsigned kind = mode == Mode::kBenign ? Pick(3) : Pick(7);
    const int rights = kind == 1 ? PROT_WRITE : kind == 2 ? PROT_READ : kind == 3 ? PROT_NONE : PROT_READ | PROT_WRITE;
    if (kind >= 1 && kind <= 3) ::mprotect(base_, 3 * kPage, rights);
    if (kind == 4) ::mprotect(base_ + kPage, kPage, PROT_WRITE);
    hole_ = kind == 5;
    if (hole_) ::munmap(base_ + kPage, kPage);
    return base_ + at;
  }

 private:
  static void* Map(size_t size) {
    void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    return memory;
  }
  char* base_;
  bool hole_ = false;
};

// Memory that a second thread overwrites, again and again, with one of two values.
struct Flipped {
  char values[2][256] = {};
  char shown[256] = {};
  std::atomic<size_t> size{0};
  std::atomic<bool> stop{false};
} flipped;

void* Flip(void*) {
  for (unsigned turn = 0; !flipped.stop; ++turn) std::memcpy(flipped.shown, flipped.values[turn % 2], flipped.size);
  return nullptr;
}

const std::vector<std::string> kInside = {"/scratch/a",
                                          "/scratch/b",
                                          "/tmp/c",
                                          "/dev/shm/d",
                                          "/scratch/sub/../e",
                                          "/scratch//f",
                                          "/scratch/inside",
                                          "/scratch/./g",
                                          "/scratch/sub/h",
                                          "/proc/self/cwd/i",
                                          "j",
                                          "./k",
                                          "/scratch/sub/"};
const std::vector<std::string> kOutside = {"/usr/a",
                                           "/etc/passwd",
                                           "/usr/bin/env",
                                           "/workspace/x",
                                           "/scratch/../usr/b",
                                           "/scratch/outside",
                                           "/scratch/outside/",
                                           "/usr/lib/../c",
                                           "/scratch/outside/d",
                                           "/",
                                           "/proc/self/root/usr/e",
                                           "/dev/new",
                                           "/scratch/sub/up/usr/f",
                                           "../usr/g",
                                           "../../../../usr/h"};

std::string PickPath() {
  if (mode == Mode::kBenign || Chance(35)) return kInside[Pick(static_cast<unsigned>(kInside.size()))];
  if (Chance(3)) return "";
  if (Chance(3)) return std::string(Pick(6000), 'x');
  return kOutside[Pick(static_cast<unsigned>(kOutside.size()))];
}

const void* PutPath(Memory& memory) {
  if (mode == Mode::kRacing && Chance(60)) {
    flipped.size = 0;
    std::strncpy(flipped.values[0], kInside[Pick(3)].c_str(), 255);
    std::strncpy(flipped.values[1], kOutside[Pick(3)].c_str(), 255);
    flipped.size = sizeof(flipped.shown);
    return flipped.shown;
  }
  if (mode != Mode::kBenign && Chance(2)) return reinterpret_cast<const void*>(random_bits());
  const std::string path = PickPath();
  return memory.Place(path.c_str(), std::min(path.size() + 1, 2 * kPage - 1));
}

int directories[4];

int PickDirectory() {
  return Chance(60) ? AT_FDCWD : Chance(4) ? 999 : directories[Pick(mode == Mode::kBenign ? 2 : 4)];
}

// Changes the working directory: a writable place, outside, a deep directory, or one that is gone.
void Move() {
  switch (mode == Mode::kBenign ? Pick(2) : Pick(5)) {
    case 0:
      (void)!::chdir("/scratch");
      return;
    case 1:
      (void)!::chdir("/scratch/sub");
      return;
    case 2:
      (void)!::chdir("/usr");
      return;
    case 3: {
      (void)!::chdir("/scratch");
      const std::string name(200, 'd');
      for (int depth = 0; depth < 25; ++depth) {
        ::mkdir(name.c_str(), 0755);
        if (::chdir(name.c_str()) != 0) return;
      }
      return;
    }
    default:
      ::mkdir("/scratch/gone", 0755);
      (void)!::chdir("/scratch/gone");
      ::rmdir("/scratch/gone");
  }
}

void Count(long result) {
  if (result >= 0) return;
  if (errno == EROFS) ++refused_writes;
  if (errno == ENETUNREACH) ++refused_peers;
}

template <typename... Arguments>
long Call(long number, Arguments... arguments) {
  const long result = ::syscall(number, arguments...);
  Count(result);
  return result;
}

int PickOpenFlags() {
  static constexpr int kFlags[] = {O_WRONLY,
                                   O_RDWR,
                                   O_WRONLY | O_CREAT,
                                   O_RDWR | O_CREAT | O_EXCL,
                                   O_RDONLY | O_TRUNC,
                                   O_CREAT,
                                   O_WRONLY | O_CREAT | O_TRUNC,
                                   O_WRONLY | O_NOFOLLOW,
                                   O_PATH | O_RDWR,
                                   O_RDWR | O_TMPFILE};
  return kFlags[Pick(std::size(kFlags))];
}

void CloseIfOpen(long fd) {
  if (fd >= 0) ::close(static_cast<int>(fd));
}

void ChangeFile() {
  Memory first, second;
  const int directory = PickDirectory(), other = PickDirectory();
  const void* path = PutPath(first);
  switch (Pick(22)) {
    case 0:
      return CloseIfOpen(Call(SYS_open, path, PickOpenFlags(), 0644));
    case 1:
    case 2:
      return CloseIfOpen(Call(SYS_openat, directory, path, PickOpenFlags(), 0644));
    case 3: {
      struct open_how how {};
      how.flags = static_cast<unsigned>(PickOpenFlags()) & ~static_cast<unsigned>(O_TMPFILE);
      how.mode = (how.flags & O_CREAT) != 0 ? 0644 : 0;
      how.resolve = Chance(30) ? RESOLVE_IN_ROOT : Chance(20) ? RESOLVE_BENEATH : 0;
      return CloseIfOpen(Call(SYS_openat2, directory, path, second.Place(&how, sizeof(how)), sizeof(how)));
    }
    case 4:
      return CloseIfOpen(Call(SYS_creat, path, 0644));
    case 5:
      return (void)Call(SYS_mkdirat, directory, path, 0755);
    case 6:
      return (void)Call(SYS_unlinkat, directory, path, Chance(50) ? AT_REMOVEDIR : 0);
    case 7:
      return (void)Call(SYS_renameat2, directory, path, other, PutPath(second), 0);
    case 8:
      return (void)Call(SYS_linkat, directory, path, other, PutPath(second), 0);
    case 9:
      return (void)Call(SYS_symlinkat, "target", directory, path);
    case 10:
      return (void)Call(SYS_mknodat, directory, path, S_IFREG | 0600, 0);  // a FIFO would block creat
    case 11:
      return (void)Call(SYS_truncate, path, 0);
    case 12:
      return (void)Call(SYS_fchmodat, directory, path, 0700);
    case 13:
      return (void)Call(SYS_fchownat, directory, path, ::getuid(), ::getgid(),
                        Chance(30)   ? AT_SYMLINK_NOFOLLOW
                        : Chance(30) ? AT_EMPTY_PATH
                                     : 0);
    case 14:
      return (void)Call(SYS_utimensat, directory, Chance(10) ? nullptr : path, nullptr,
                        Chance(30)   ? AT_SYMLINK_NOFOLLOW
                        : Chance(30) ? AT_EMPTY_PATH
                                     : 0);
    case 15:
      return (void)Call(SYS_setxattr, path, "user.fuzz", "1", 1, 0);
    case 16:
      return (void)Call(SYS_lchown, path, ::getuid(), ::getgid());
    case 17:
      return (void)Call(SYS_rmdir, path);
    case 18:
      return (void)Call(SYS_fchmod, directory, 0755);
    case 19:
      return (void)Call(SYS_futimesat, directory, path, nullptr);
    case 20:
      return (void)Call(SYS_lremovexattr, path, "user.fuzz");
    default: {
      struct sockaddr_un address {};
      address.sun_family = AF_UNIX;
      std::strncpy(address.sun_path, PickPath().c_str(), sizeof(address.sun_path) - 1);
      const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      Call(SYS_bind, fd, second.Place(&address, sizeof(address)), sizeof(address));
      return CloseIfOpen(fd);
    }
  }
}

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

Address PickAddress() {
  Address address;
  const bool outside = mode != Mode::kBenign && Chance(60);
  if (Chance(60)) {
    struct sockaddr_in in {};
    in.sin_family = static_cast<sa_family_t>(mode != Mode::kBenign && Chance(20) ? AF_UNSPEC : AF_INET);
    in.sin_port = htons(9);
    ::inet_pton(AF_INET, outside ? "192.0.2.1" : "127.0.0.1", &in.sin_addr);
    std::memcpy(&address.storage, &in, sizeof(in));
    address.size = sizeof(in);
  } else {
    struct sockaddr_in6 in6 {};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(9);
    ::inet_pton(AF_INET6, outside ? (Chance(50) ? "2001:db8::1" : "::ffff:192.0.2.1") : "::1", &in6.sin6_addr);
    std::memcpy(&address.storage, &in6, sizeof(in6));
    address.size = sizeof(in6);
  }
  if (mode != Mode::kBenign && Chance(10)) address.size = Pick(140);
  return address;
}

void* PutAddress(Memory& memory, const Address& address) {
  if (mode == Mode::kRacing && Chance(60)) {
    Address here;
    struct sockaddr_in in {};
    in.sin_family = AF_INET;
    in.sin_port = htons(9);
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    flipped.size = 0;
    std::memcpy(flipped.values[0], &in, sizeof(in));
    std::memcpy(flipped.values[1], &address.storage, sizeof(in));
    flipped.size = sizeof(in);
    return flipped.shown;
  }
  return memory.Place(&address.storage, std::max<size_t>(address.size, 1));
}

void ReachPeer() {
  const int family = Chance(50) ? AF_INET : AF_INET6;
  const int type = Chance(70) ? SOCK_DGRAM : SOCK_STREAM | SOCK_NONBLOCK;
  const int fd = ::socket(family, type | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  Memory first, second;
  const Address address = PickAddress();
  void* placed = PutAddress(first, address);
  char byte = 'x';
  struct iovec data {
    &byte, 1
  };
  switch (Pick(4)) {
    case 0:
      Call(SYS_connect, fd, placed, address.size);
      break;
    case 1:
      Call(SYS_sendto, fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT, placed, address.size);
      break;
    case 2: {
      struct msghdr message {};
      message.msg_name = placed;
      message.msg_namelen = address.size;
      message.msg_iov = &data;
      message.msg_iovlen = 1;
      Call(SYS_sendmsg, fd, second.Place(&message, sizeof(message)), MSG_NOSIGNAL | MSG_DONTWAIT);
      break;
    }
    default: {
      struct mmsghdr messages[2] = {};
      for (struct mmsghdr& message : messages) {
        message.msg_hdr.msg_name = placed;
        message.msg_hdr.msg_namelen = address.size;
        message.msg_hdr.msg_iov = &data;
        message.msg_hdr.msg_iovlen = 1;
      }
      Call(SYS_sendmmsg, fd, second.Place(messages, sizeof(messages)), 2, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }
  ::close(fd);
}

void MakeTree() {
  ::mkdir("/scratch/sub", 0755);
  (void)!::symlink("/scratch/sub", "/scratch/inside");
  (void)!::symlink("/usr", "/scratch/outside");
  (void)!::symlink("../..", "/scratch/sub/up");
  directories[0] = ::open("/scratch", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  directories[1] = ::open("/scratch/sub", O_PATH | O_DIRECTORY | O_CLOEXEC);
  directories[2] = ::open("/usr/lib", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  directories[3] = ::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string name = argv[1];
  mode = name == "racing" ? Mode::kRacing : name == "benign" ? Mode::kBenign : Mode::kStrict;
  random_bits.seed(static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)));
  MakeTree();
  if (::chdir("/scratch") != 0) return 3;
  pthread_t thread{};
  if (mode == Mode::kRacing && ::pthread_create(&thread, nullptr, Flip, nullptr) != 0) return 3;
  for (long calls = std::strtol(argv[3], nullptr, 10); calls > 0; --calls) {
    if (Chance(10)) Move();
    if (Chance(70)) {
      ChangeFile();
    } else {
      ReachPeer();
    }
    // Restores files that random calls removed and later calls need.
    if (Chance(5)) MakeTree();
    if (Chance(5)) {
      for (int fd = 64; fd < 1024; ++fd) ::close(fd);
    }
  }
  if (mode == Mode::kRacing) {
    flipped.stop = true;
    ::pthread_join(thread, nullptr);
  }
  std::printf("refused_writes=%ld refused_peers=%ld\n", refused_writes, refused_peers);
  return 0;
}
