#include "launcher/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace caisson::launcher {

namespace {

// Large enough for a chunk of output with its frame, and for any ordinary Spec.
constexpr size_t kInlineBytes = size_t{96} << 10;
constexpr size_t kHeaderBytes = 2;  // kind, and whether the body is in the packet
constexpr char kInPacket = 0, kSpilled = 1;
constexpr size_t kMaxFds = 253;  // SCM_MAX_FD
constexpr unsigned kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

Error Gone() { return {ErrorKind::kSystem, ECONNRESET, "the other side has closed the connection"}; }

Result<UniqueFd> Seal(std::string_view bytes) {
  UniqueFd file(::memfd_create("caisson-frame", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return Error::System(errno, "make room for a large frame");
  for (size_t written = 0; written < bytes.size();) {
    const ssize_t size = ::write(file.get(), bytes.data() + written, bytes.size() - written);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return Error::System(errno, "write a large frame");
    written += static_cast<size_t>(size);
  }
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return Error::System(errno, "seal a large frame");
  return file;
}

std::string Number(uint64_t value) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
  return bytes;
}

Status Wait(int connection, short events) {
  struct pollfd wait {
    connection, events, 0
  };
  while (::poll(&wait, 1, -1) < 0) {
    if (errno != EINTR) return Error::System(errno, "wait for the connection");
  }
  return {};
}

// Space for all ancillary data that can accompany a packet.
struct Ancillary {
  alignas(struct cmsghdr) char bytes[CMSG_SPACE(sizeof(int) * kMaxFds) + CMSG_SPACE(sizeof(struct ucred))] = {};
};

void Add(struct msghdr& message, int type, const void* data, size_t size) {
  // Appends to the ancillary data that is already there; Ancillary is large enough for both kinds.
  auto* header = reinterpret_cast<struct cmsghdr*>(static_cast<char*>(message.msg_control) + message.msg_controllen);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = type;
  header->cmsg_len = CMSG_LEN(size);
  std::memcpy(CMSG_DATA(header), data, size);
  message.msg_controllen += CMSG_SPACE(size);
}

Status SendPacket(int connection, std::string_view header, std::string_view body, const std::vector<int>& fds,
                  const struct ucred* sender, bool wait) {
  struct iovec parts[2] = {{const_cast<char*>(header.data()), header.size()},
                           {const_cast<char*>(body.data()), body.size()}};
  Ancillary ancillary;
  struct msghdr message {};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = ancillary.bytes;
  if (fds.size() > kMaxFds) return Error::Invalid("more than " + std::to_string(kMaxFds) + " descriptors");
  if (!fds.empty()) Add(message, SCM_RIGHTS, fds.data(), sizeof(int) * fds.size());
  if (sender != nullptr) Add(message, SCM_CREDENTIALS, sender, sizeof(*sender));
  if (message.msg_controllen == 0) message.msg_control = nullptr;
  for (;;) {
    if (::sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return {};
    if (errno == EPIPE || errno == ECONNRESET) return Gone();
    if (errno == EAGAIN && wait) {
      CAISSON_TRY_VOID(Wait(connection, POLLOUT));
    } else if (errno != EINTR) {
      return Error::System(errno, "send a frame");
    }
  }
}

struct Packet {
  std::string bytes;
  std::vector<UniqueFd> fds;
  struct ucred sender {};
};

// If the peer closed without reading everything we sent, the kernel reports ECONNRESET once, before the data that the
// peer still sent. Retrying reaches that data.
template <typename Take>
ssize_t Insist(const Take& take) {
  ssize_t size;
  while ((size = take()) < 0 && (errno == EINTR || errno == ECONNRESET)) {
  }
  return size;
}

Result<Packet> ReceivePacket(int connection, size_t most) {
  // Allocates only what the packet needs: most frames are a thousandth of the largest.
  const ssize_t waiting = Insist([&] { return ::recv(connection, nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT); });
  if (waiting < 0) return Error::System(errno, "receive a frame");
  Packet packet;
  packet.bytes.resize(std::clamp<size_t>(static_cast<size_t>(waiting), 1, most));
  struct iovec part {
    packet.bytes.data(), packet.bytes.size()
  };
  Ancillary ancillary;
  struct msghdr message {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.bytes;
  message.msg_controllen = sizeof(ancillary.bytes);
  const ssize_t size = Insist([&] { return ::recvmsg(connection, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT); });
  if (size < 0) return Error::System(errno, "receive a frame");
  // Takes the descriptors first: even if the packet is invalid, this process owns them and must close them.
  for (struct cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET) continue;
    const size_t bytes = header->cmsg_len - CMSG_LEN(0);
    if (header->cmsg_type == SCM_CREDENTIALS && bytes == sizeof(packet.sender))
      std::memcpy(&packet.sender, CMSG_DATA(header), bytes);
    if (header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + at, sizeof(fd));
      packet.fds.emplace_back(fd);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return Error::Invalid("frame: longer than any can be");
  if (size == 0) return Gone();
  packet.bytes.resize(static_cast<size_t>(size));
  return packet;
}

// A signal frame holds the signal's number in the byte that tells, in other frames, where the body is.
bool IsSignal(const Packet& packet) {
  return packet.bytes.size() == kHeaderBytes && packet.fds.empty() &&
         packet.bytes[0] == static_cast<char>(Kind::kSignal);
}

}  // namespace

Result<Mapping> Mapping::Map(int sealed_fd, size_t size) {
  // SECURITY: without the seals the sender could change bytes that were already checked, or truncate the file while we
  // read it.
  const int seals = ::fcntl(sealed_fd, F_GET_SEALS);
  if (seals < 0 || (static_cast<unsigned>(seals) & kSeals) != kSeals)
    return Error::Invalid("frame: its body is not in a sealed memfd");
  struct stat info {};
  if (::fstat(sealed_fd, &info) != 0) return Error::System(errno, "stat a large frame");
  if (info.st_size <= 0 || static_cast<uint64_t>(info.st_size) != size || size > kMaxBodyBytes)
    return Error::Invalid("frame: its body is not as long as it says, or longer than " + std::to_string(kMaxBodyBytes));
  Mapping mapping;
  mapping.address_ = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, sealed_fd, 0);
  if (mapping.address_ == MAP_FAILED) {
    mapping.address_ = nullptr;
    return Error::System(errno, "map a large frame");
  }
  mapping.size_ = size;
  return mapping;
}

Mapping::~Mapping() {
  if (address_ != nullptr) ::munmap(address_, size_);
}

Status Send(int connection, Kind kind, const Encoded& body, bool wait) {
  std::string header = {static_cast<char>(kind), kInPacket};
  if (body.bytes.size() <= kInlineBytes) return SendPacket(connection, header, body.bytes, body.fds, nullptr, wait);
  if (body.bytes.size() > kMaxBodyBytes) {
    return Error::Invalid("this takes a frame of " + std::to_string(body.bytes.size()) +
                          " bytes, and a launcher takes " + std::to_string(kMaxBodyBytes));
  }
  CAISSON_TRY(const UniqueFd file, Seal(body.bytes));
  std::vector<int> fds = {file.get()};
  fds.insert(fds.end(), body.fds.begin(), body.fds.end());
  header[1] = kSpilled;
  return SendPacket(connection, header, Number(body.bytes.size()), fds, nullptr, wait);
}

Result<Frame> Receive(int connection) {
  Packet packet;
  do {
    CAISSON_TRY_VOID(Wait(connection, POLLIN));
    CAISSON_TRY(packet, ReceivePacket(connection, kHeaderBytes + kInlineBytes));
  } while (IsSignal(packet));
  const auto kind = static_cast<Kind>(packet.bytes[0]);
  if (packet.bytes.size() < kHeaderBytes || kind < Kind::kOpen || kind > Kind::kError)
    return Error::Invalid("frame: of no known kind");
  Frame frame;
  frame.kind = kind;
  frame.fds = std::move(packet.fds);
  const char where = packet.bytes[1];
  packet.bytes.erase(0, kHeaderBytes);
  if (where == kInPacket) {
    frame.packet = std::move(packet.bytes);
    return frame;
  }
  if (where != kSpilled || packet.bytes.size() != 8 || frame.fds.empty())
    return Error::Invalid("frame: its body is nowhere");
  uint64_t size = 0;
  for (size_t i = 0; i < 8; ++i) size |= uint64_t{static_cast<unsigned char>(packet.bytes[i])} << (8 * i);
  CAISSON_TRY(frame.spilled, Mapping::Map(frame.fds[0].get(), size));
  frame.fds.erase(frame.fds.begin());
  return frame;
}

void SendSignal(int connection, const StopRequest& request) {
  const std::string header = {static_cast<char>(Kind::kSignal), static_cast<char>(request.signal)};
  (void)SendPacket(connection, header, "", {}, nullptr, request.signal == 0);
}

std::optional<StopRequest> TakeSignal(int connection) {
  // The buffer holds only the two bytes and no ancillary data, so the kernel drops descriptors sent beside them.
  unsigned char bytes[kHeaderBytes];
  const ssize_t size = ::recv(connection, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_TRUNC);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (size != sizeof(bytes) || bytes[0] != static_cast<unsigned char>(Kind::kSignal)) return StopRequest{};
  return StopRequest{bytes[1]};
}

namespace {

constexpr char kStatusOnly = 0x7f;  // takes the place of the warmest start

Status SendRequest(int control, int end, char what) {
  const std::string header = {static_cast<char>(Kind::kOpen), kInPacket};
  // The sender states its credentials instead of relying on the receiver's SO_PASSCRED, which the launcher may not have
  // set yet. The kernel checks them.
  struct ucred sender {};
  sender.pid = ::getpid();
  sender.uid = ::geteuid();
  sender.gid = ::getegid();
  return SendPacket(control, header, Number(kProtocolVersion) + what, {end}, &sender, true);
}

}  // namespace

Status SendRunRequest(int control, int run_end, sandbox::Start warmest) {
  return SendRequest(control, run_end, static_cast<char>(warmest));
}

Status SendStatusRequest(int control, int answer_end) { return SendRequest(control, answer_end, kStatusOnly); }

Result<RunRequest> ReceiveRunRequest(int control) {
  CAISSON_TRY(Packet packet, ReceivePacket(control, 64));
  if (packet.fds.size() != 1 || packet.bytes.size() < kHeaderBytes || packet.bytes[0] != static_cast<char>(Kind::kOpen))
    return Error::Invalid("open: one connection is needed");
  RunRequest run_request;
  run_request.run = std::move(packet.fds[0]);
  run_request.sender = packet.sender;
  int domain = 0, type = 0;
  socklen_t length = sizeof(domain);
  if (::getsockopt(run_request.run.get(), SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_UNIX)
    return Error::Invalid("open: not a connection");
  length = sizeof(type);
  if (::getsockopt(run_request.run.get(), SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_SEQPACKET)
    return Error::Invalid("open: not a seqpacket connection");
  const std::string version = Number(kProtocolVersion);
  const size_t end = kHeaderBytes + version.size();
  if (packet.bytes.compare(kHeaderBytes, version.size(), version) == 0 && packet.bytes.size() == end + 1) {
    const char what = packet.bytes[end];
    run_request.is_status = what == kStatusOnly;
    if (!run_request.is_status && (what < 0 || what > static_cast<char>(sandbox::Start::kInterpreter)))
      return Error::Invalid("open: for nothing that is known");
    if (!run_request.is_status) run_request.warmest = static_cast<sandbox::Start>(what);
    return run_request;
  }
  Error error = Error::Unsupported("the launcher speaks version " + std::to_string(kProtocolVersion) +
                                   " of its protocol and the client another; install both from one release");
  (void)Send(run_request.run.get(), Kind::kError, Encode(error), false);
  return error;
}

Status PassOn(int control_socket, const RunRequest& run_request) {
  // Both ends are forks of the same program, so there is nothing to parse.
  const std::string_view sender(reinterpret_cast<const char*>(&run_request.sender), sizeof(run_request.sender));
  return SendPacket(control_socket, sender, "", {run_request.run.get()}, nullptr, false);
}

Status PassControlSocket(int zygote, int control_socket) {
  return SendPacket(zygote, "l", "", {control_socket}, nullptr, false);
}

Result<UniqueFd> TakeControlSocket(int launcher) {
  CAISSON_TRY_VOID(Wait(launcher, POLLIN));
  CAISSON_TRY(Packet packet, ReceivePacket(launcher, 1));
  if (packet.fds.size() != 1) return Error::Invalid("control_socket: one is needed");
  return std::move(packet.fds[0]);
}

Result<RunRequest> TakePassedOn(int control_socket) {
  CAISSON_TRY_VOID(Wait(control_socket, POLLIN));
  CAISSON_TRY(Packet packet, ReceivePacket(control_socket, sizeof(struct ucred)));
  CAISSON_CHECK(packet.fds.size() == 1 && packet.bytes.size() == sizeof(struct ucred));
  RunRequest run_request;
  run_request.run = std::move(packet.fds[0]);
  std::memcpy(&run_request.sender, packet.bytes.data(), sizeof(run_request.sender));
  return run_request;
}

}  // namespace caisson::launcher
