#include "sandbox/observed_memory.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>

#include "sandbox/mutation.h"

namespace caisson::sandbox {

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMaxMessages = 1024;  // the most that the kernel accepts in one call

// `sends`: for the destination of a datagram the kernel treats AF_UNSPEC as AF_INET; in connect it means no peer at
// all.
std::optional<Peer> OutsidePeer(const sockaddr_storage& storage, size_t length, bool sends) {
  char text[INET6_ADDRSTRLEN];
  const bool unspecified = sends && storage.ss_family == AF_UNSPEC && !CAISSON_LEFT_OUT("address_forms");
  const bool ipv4 = storage.ss_family == AF_INET || unspecified;
  if (ipv4 && length >= sizeof(sockaddr_in)) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(storage);
    const uint32_t host = ntohl(in.sin_addr.s_addr);
    if (host >> 24 == 127 || host == INADDR_ANY) return std::nullopt;
    ::inet_ntop(AF_INET, &in.sin_addr, text, sizeof(text));
    return Peer{text, ntohs(in.sin_port), host};
  }
  if (storage.ss_family == AF_INET6 && length >= 24) {
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(storage);
    const uint8_t* bytes = in6.sin6_addr.s6_addr;
    if (IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr) || IN6_IS_ADDR_UNSPECIFIED(&in6.sin6_addr)) return std::nullopt;
    if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr) &&
        (bytes[12] == 127 || (bytes[12] | bytes[13] | bytes[14] | bytes[15]) == 0)) {
      return std::nullopt;
    }
    ::inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof(text));
    Peer peer{text, ntohs(in6.sin6_port)};
    if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr))
      peer.ipv4 = uint32_t{bytes[12]} << 24 | uint32_t{bytes[13]} << 16 | uint32_t{bytes[14]} << 8 | bytes[15];
    return peer;
  }
  return std::nullopt;
}

std::optional<Peer> ReadOutsidePeer(const ReadMemory& memory, uint64_t address, uint64_t length, bool sends) {
  sockaddr_storage storage{};
  const size_t size = std::min<size_t>(static_cast<uint32_t>(length), sizeof(storage));
  if (address == 0 || size < sizeof(storage.ss_family) || !memory(address, &storage, size)) return std::nullopt;
  return OutsidePeer(storage, size, sends);
}

}  // namespace

std::optional<std::string> ReadPath(const ReadMemory& memory, uint64_t address) {
  // Reads in pieces that end at page boundaries, so that a path that ends just before an unmapped page is read too.
  std::string path;
  char chunk[512];
  while (path.size() < PATH_MAX) {
    const size_t size = std::min<size_t>(sizeof(chunk), kPage - address % kPage);
    if (!memory(address, chunk, size)) return std::nullopt;
    const size_t length = ::strnlen(chunk, size);
    path.append(chunk, length);
    // The kernel accepts at most PATH_MAX bytes, including the NUL.
    if (length < size) return path.size() < PATH_MAX ? std::optional(std::move(path)) : std::nullopt;
    address += size;
  }
  return std::nullopt;
}

std::optional<OpenHow> ReadOpenHow(const ReadMemory& memory, const PathCall& call, Registers args) {
  if (call.number == SYS_creat) return OpenHow{O_CREAT | O_WRONLY | O_TRUNC, 0};
  if (call.flags != kNoArgument) return OpenHow{static_cast<uint32_t>(args[call.flags]), 0};
  struct open_how how {};
  // The kernel refuses a smaller structure before it reads it.
  if (call.number != SYS_openat2 || args[3] < sizeof(how)) return OpenHow{};
  if (!memory(args[2], &how, sizeof(how))) return std::nullopt;
  return OpenHow{how.flags, how.resolve};
}

bool OpensForWriting(uint64_t flags) { return (flags & O_PATH) == 0 && (flags & (O_ACCMODE | O_CREAT | O_TRUNC)) != 0; }

std::optional<std::string> ReadBoundPath(const ReadMemory& memory, Registers args) {
  constexpr size_t kPathStart = offsetof(struct sockaddr_un, sun_path);
  struct sockaddr_un address {};
  const size_t size = std::min<size_t>(static_cast<uint32_t>(args[2]), sizeof(address));
  if (size <= kPathStart || !memory(args[1], &address, size) || address.sun_family != AF_UNIX) return std::nullopt;
  std::string path(address.sun_path, ::strnlen(address.sun_path, size - kPathStart));
  if (path.empty()) return std::nullopt;  // an abstract name belongs to the network namespace
  return path;
}

std::optional<Peer> FindOutsidePeer(const ReadMemory& memory, const AddressCall& call, Registers args,
                                    const IsServed& is_served) {
  const auto unless_served = [&](std::optional<Peer> peer) {
    return peer && is_served && is_served(*peer) ? std::nullopt : std::move(peer);
  };
  if (call.where == AddressAt::kArgument)
    return unless_served(ReadOutsidePeer(memory, args[call.address], args[call.length], call.number != SYS_connect));
  const bool one = call.where == AddressAt::kMessage;
  const uint64_t count = one ? 1 : std::min<uint64_t>(static_cast<uint32_t>(args[call.length]), kMaxMessages);
  const size_t stride = one ? sizeof(struct msghdr) : sizeof(struct mmsghdr);
  for (uint64_t i = 0; i < count; ++i) {
    struct msghdr message {};
    if (!memory(args[call.address] + i * stride, &message, sizeof(message))) break;
    const uint64_t name = reinterpret_cast<uint64_t>(message.msg_name);
    if (auto peer = unless_served(ReadOutsidePeer(memory, name, message.msg_namelen, true))) return peer;
  }
  return std::nullopt;
}

bool AllocatesMoreThan(int64_t most, Registers args) {
  const auto offset = static_cast<int64_t>(args[2]), length = static_cast<int64_t>(args[3]);
  if (offset < 0 || length <= 0) return false;
  return length > most || offset > most - length;
}

}  // namespace caisson::sandbox
