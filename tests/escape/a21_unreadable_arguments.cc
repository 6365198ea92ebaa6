// Arguments in memory that the kernel can read but process_vm_readv cannot: a page that is mapped for writing only.
// Every call that changes a file or names a peer, each by itself: it must be refused, and be in the record.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "escape/outside_peer.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// The bytes, where only writing is allowed.
template <typename T>
T* WriteOnly(const void* bytes, size_t size) {
  void* page = ::mmap(nullptr, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memcpy(page, bytes, size);
  ::mprotect(page, 16384, PROT_WRITE);
  return static_cast<T*>(page);
}

char* Text(const std::string& text) { return WriteOnly<char>(text.c_str(), text.size() + 1); }

// A file and a name beside it that the sandbox shows and forbids to change; in the control, of our own.
struct Victim {
  std::string file, fresh, directory;
};

Victim MakeVictim() {
  if (!IsControl()) return {"/usr/bin/env", "/usr/caisson-selftest", "/usr/lib"};
  const std::string base = WritableDirectory();
  const Victim victim{base + "/file", base + "/fresh", base + "/directory"};
  ::close(::open(victim.file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  ::mkdir(victim.directory.c_str(), 0755);
  return victim;
}

using FileCall = long (*)(const Victim&);

struct NamedFileCall {
  const char* name;
  FileCall call;
};

const NamedFileCall kFileCalls[] = {
    {"open", [](const Victim& v) { return Call(SYS_open, Text(v.file), O_WRONLY); }},
    {"openat", [](const Victim& v) { return Call(SYS_openat, AT_FDCWD, Text(v.fresh), O_WRONLY | O_CREAT, 0644); }},
    {"openat2",
     [](const Victim& v) {
       struct open_how how {};
       how.flags = O_WRONLY;
       return Call(SYS_openat2, AT_FDCWD, Text(v.file), WriteOnly<struct open_how>(&how, sizeof(how)), sizeof(how));
     }},
    {"creat", [](const Victim& v) { return Call(SYS_creat, Text(v.fresh), 0644); }},
    {"mkdir", [](const Victim& v) { return Call(SYS_mkdir, Text(v.fresh), 0755); }},
    {"mkdirat", [](const Victim& v) { return Call(SYS_mkdirat, AT_FDCWD, Text(v.fresh), 0755); }},
    {"rmdir", [](const Victim& v) { return Call(SYS_rmdir, Text(v.directory)); }},
    {"unlink", [](const Victim& v) { return Call(SYS_unlink, Text(v.file)); }},
    {"unlinkat", [](const Victim& v) { return Call(SYS_unlinkat, AT_FDCWD, Text(v.file), 0); }},
    {"rename", [](const Victim& v) { return Call(SYS_rename, Text(v.file), Text(v.fresh)); }},
    {"renameat", [](const Victim& v) { return Call(SYS_renameat, AT_FDCWD, Text(v.file), AT_FDCWD, Text(v.fresh)); }},
    {"renameat2",
     [](const Victim& v) { return Call(SYS_renameat2, AT_FDCWD, Text(v.file), AT_FDCWD, Text(v.fresh), 0); }},
    {"link", [](const Victim& v) { return Call(SYS_link, Text(v.file), Text(v.fresh)); }},
    {"linkat", [](const Victim& v) { return Call(SYS_linkat, AT_FDCWD, Text(v.file), AT_FDCWD, Text(v.fresh), 0); }},
    {"symlink", [](const Victim& v) { return Call(SYS_symlink, Text("x"), Text(v.fresh)); }},
    {"symlinkat", [](const Victim& v) { return Call(SYS_symlinkat, Text("x"), AT_FDCWD, Text(v.fresh)); }},
    {"mknod", [](const Victim& v) { return Call(SYS_mknod, Text(v.fresh), S_IFIFO | 0600, 0); }},
    {"mknodat", [](const Victim& v) { return Call(SYS_mknodat, AT_FDCWD, Text(v.fresh), S_IFIFO | 0600, 0); }},
    {"truncate", [](const Victim& v) { return Call(SYS_truncate, Text(v.file), 0); }},
    {"chmod", [](const Victim& v) { return Call(SYS_chmod, Text(v.file), 0700); }},
    {"fchmodat", [](const Victim& v) { return Call(SYS_fchmodat, AT_FDCWD, Text(v.file), 0700); }},
    {"chown", [](const Victim& v) { return Call(SYS_chown, Text(v.file), ::getuid(), ::getgid()); }},
    {"lchown", [](const Victim& v) { return Call(SYS_lchown, Text(v.file), ::getuid(), ::getgid()); }},
    {"fchownat", [](const Victim& v) { return Call(SYS_fchownat, AT_FDCWD, Text(v.file), ::getuid(), ::getgid(), 0); }},
    {"utime", [](const Victim& v) { return Call(SYS_utime, Text(v.file), nullptr); }},
    {"utimes", [](const Victim& v) { return Call(SYS_utimes, Text(v.file), nullptr); }},
    {"futimesat", [](const Victim& v) { return Call(SYS_futimesat, AT_FDCWD, Text(v.file), nullptr); }},
    {"utimensat", [](const Victim& v) { return Call(SYS_utimensat, AT_FDCWD, Text(v.file), nullptr, 0); }},
    {"setxattr", [](const Victim& v) { return Call(SYS_setxattr, Text(v.file), Text("user.caisson"), "1", 1, 0); }},
    {"bind",
     [](const Victim& v) {
       struct sockaddr_un address {};
       address.sun_family = AF_UNIX;
       std::strncpy(address.sun_path, v.fresh.c_str(), sizeof(address.sun_path) - 1);
       const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
       return Call(SYS_bind, fd, WriteOnly<char>(&address, sizeof(address)), sizeof(address));
     }},
};

using PeerCall = long (*)(const struct sockaddr_in&);

struct NamedPeerCall {
  const char* name;
  const char* reason;
  PeerCall call;
};

struct msghdr MessageTo(const struct sockaddr_in& peer) {
  static char byte = 'x';
  static struct iovec data { &byte, 1 };
  struct msghdr message {};
  message.msg_name = WriteOnly<char>(&peer, sizeof(peer));
  message.msg_namelen = sizeof(peer);
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  return message;
}

const NamedPeerCall kPeerCalls[] = {
    {"connect", "net.connect",
     [](const struct sockaddr_in& peer) {
       return Call(SYS_connect, Datagram(), WriteOnly<char>(&peer, sizeof(peer)), sizeof(peer));
     }},
    {"sendto", "net.send",
     [](const struct sockaddr_in& peer) {
       return Call(SYS_sendto, Datagram(), "x", 1, 0, WriteOnly<char>(&peer, sizeof(peer)), sizeof(peer));
     }},
    {"sendmsg", "net.send",
     [](const struct sockaddr_in& peer) {
       const struct msghdr message = MessageTo(peer);
       return Call(SYS_sendmsg, Datagram(), WriteOnly<char>(&message, sizeof(message)), 0);
     }},
    {"sendmmsg", "net.send",
     [](const struct sockaddr_in& peer) {
       struct mmsghdr messages[1] = {};
       messages[0].msg_hdr = MessageTo(peer);
       return Call(SYS_sendmmsg, Datagram(), WriteOnly<char>(messages, sizeof(messages)), 1, 0);
     }},
};

std::vector<Attempt> Attempts() {
  std::vector<Attempt> attempts;
  for (const NamedFileCall& call : kFileCalls) {
    attempts.push_back({.name = call.name,
                        .probe = [&call] { return FromCall(call.call(MakeVictim()), "changed a file"); },
                        .expect = {.errnos = {EROFS, EACCES, EPERM},
                                   .reports = {{"FilesystemWriteViolation", "fs.write", call.name}}}});
  }
  for (const NamedPeerCall& call : kPeerCalls) {
    attempts.push_back(
        {.name = call.name,
         .probe =
             [&call] {
               if (!MakeOutsidePeerReachable()) return NotApplicable("no address can be added");
               return FromCall(call.call(OutsidePeer()), "reached a peer");
             },
         .control = {.place = Place::kOwnNamespaces},
         .expect = {.errnos = {ENETUNREACH}, .reports = {{"NetworkAccessViolation", call.reason, call.name}}}});
  }
  return attempts;
}

const Registration kRow(Row{
    .id = "A21",
    .title = "arguments in memory that is mapped for writing only",
    .severity = Severity::kIntegrity,
    .walls = {"observer"},
    .attempts = Attempts(),
});

}  // namespace

}  // namespace caisson::escape
