#include "sandbox/observed_memory.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>

namespace caisson::sandbox {

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMaxMessages = 1024;  // as many as the kernel takes in one call

std::optional<Peer> OutsidePeer(const sockaddr_storage& storage, size_t length) {
  char text[INET6_ADDRSTRLEN];
  if (storage.ss_family == AF_INET && length >= sizeof(sockaddr_in)) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(storage);
    const uint32_t host = ntohl(in.sin_addr.s_addr);
    if (host >> 24 == 127 || host == INADDR_ANY) return std::nullopt;
    ::inet_ntop(AF_INET, &in.sin_addr, text, sizeof(text));
    return Peer{text, ntohs(in.sin_port)};
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
    return Peer{text, ntohs(in6.sin6_port)};
  }
  return std::nullopt;
}

std::optional<Peer> ReadOutsidePeer(const ReadMemory& memory, uint64_t address, uint64_t length) {
  sockaddr_storage storage{};
  const size_t size = std::min<size_t>(static_cast<uint32_t>(length), sizeof(storage));
  if (address == 0 || size < sizeof(storage.ss_family) || !memory(address, &storage, size)) return std::nullopt;
  return OutsidePeer(storage, size);
}

}  // namespace

std::optional<std::string> ReadPath(const ReadMemory& memory, uint64_t address) {
  // By pieces that end where a page does, so that a path that ends just before an unmapped page is read too.
  std::string path;
  char chunk[512];
  while (path.size() < PATH_MAX) {
    const size_t size = std::min<size_t>(sizeof(chunk), kPage - address % kPage);
    if (!memory(address, chunk, size)) return std::nullopt;
    const size_t length = ::strnlen(chunk, size);
    path.append(chunk, length);
    // With its end, PATH_MAX bytes are the most that the kernel takes.
    if (length < size) return path.size() < PATH_MAX ? std::optional(std::move(path)) : std::nullopt;
    address += size;
  }
  return std::nullopt;
}

bool OpensForWriting(const ReadMemory& memory, Registers args) {
  constexpr uint64_t kWrites = O_ACCMODE | O_CREAT | O_TRUNC;
  uint64_t flags = 0;  // the first member of struct open_how
  return memory(args[2], &flags, sizeof(flags)) && (flags & kWrites) != 0;
}

std::optional<std::string> ReadBoundPath(const ReadMemory& memory, Registers args) {
  constexpr size_t kPathStart = offsetof(struct sockaddr_un, sun_path);
  struct sockaddr_un address {};
  const size_t size = std::min<size_t>(static_cast<uint32_t>(args[2]), sizeof(address));
  if (size <= kPathStart || !memory(args[1], &address, size) || address.sun_family != AF_UNIX) return std::nullopt;
  std::string path(address.sun_path, ::strnlen(address.sun_path, size - kPathStart));
  if (path.empty()) return std::nullopt;  // an abstract name is the network namespace's
  return path;
}

std::optional<Peer> FindOutsidePeer(const ReadMemory& memory, const AddressCall& call, Registers args) {
  if (call.where == AddressAt::kArgument) return ReadOutsidePeer(memory, args[call.address], args[call.length]);
  const bool one = call.where == AddressAt::kMessage;
  const uint64_t count = one ? 1 : std::min<uint64_t>(static_cast<uint32_t>(args[call.length]), kMaxMessages);
  const size_t stride = one ? sizeof(struct msghdr) : sizeof(struct mmsghdr);
  for (uint64_t i = 0; i < count; ++i) {
    struct msghdr message {};
    if (!memory(args[call.address] + i * stride, &message, sizeof(message))) break;
    if (auto peer = ReadOutsidePeer(memory, reinterpret_cast<uint64_t>(message.msg_name), message.msg_namelen))
      return peer;
  }
  return std::nullopt;
}

bool AllocatesMoreThan(int64_t most, Registers args) {
  const auto offset = static_cast<int64_t>(args[2]), length = static_cast<int64_t>(args[3]);
  if (offset < 0 || length <= 0) return false;
  return length > most || offset > most - length;
}

}  // namespace caisson::sandbox
