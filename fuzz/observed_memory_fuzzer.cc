// Registers and memory of a workload, both hostile. The first bytes choose the call and its registers, the rest is the
// memory: a few pages at a fixed place, with nothing around them.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/types.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "sandbox/observed_memory.h"
#include "target.h"

namespace {

using caisson::sandbox::AddressCall;
using caisson::sandbox::Peer;
using caisson::sandbox::ReadMemory;

constexpr uint64_t kBase = 0x7f0000000000;
constexpr size_t kPage = 4096;
constexpr size_t kMaxBytes = 16 * kPage;

struct Input {
  uint8_t selector = 0;
  __u64 args[6] = {};
};

// A path as the kernel reads it: byte by byte.
std::optional<std::string> ReadSlowly(const ReadMemory& memory, uint64_t address) {
  std::string path;
  for (char byte; path.size() < PATH_MAX; path += byte) {
    if (!memory(address + path.size(), &byte, 1)) return std::nullopt;
    if (byte == '\0') return path;
  }
  return std::nullopt;
}

void CheckPeer(const Peer& peer) {
  in6_addr six{};
  in_addr four{};
  const bool is_four = ::inet_pton(AF_INET, peer.address.c_str(), &four) == 1;
  CAISSON_CHECK(is_four || ::inet_pton(AF_INET6, peer.address.c_str(), &six) == 1);
  // The sandbox's own loopback is no outside peer, however it is written.
  const std::string& text = peer.address;
  for (const char* own : {"0.0.0.0", "::", "::1", "::ffff:0.0.0.0"}) CAISSON_CHECK(text != own);
  CAISSON_CHECK(text.rfind("127.", 0) != 0 && text.rfind("::ffff:127.", 0) != 0);
}

}  // namespace

CAISSON_FUZZ_TARGET(observed_memory) {
  Input input;
  if (size < sizeof(input) || size > sizeof(input) + kMaxBytes) return 0;
  std::memcpy(&input, bytes, sizeof(input));
  // Only whole pages exist.
  std::vector<uint8_t> pages((size - sizeof(input) + kPage - 1) / kPage * kPage);
  std::copy(bytes + sizeof(input), bytes + size, pages.begin());
  size_t reads = 0;
  const ReadMemory memory = [&](uint64_t address, void* to, size_t wanted) {
    CAISSON_CHECK(wanted > 0 && wanted <= kPage && ++reads <= 4 * PATH_MAX);
    if (address < kBase || address - kBase > pages.size() || wanted > pages.size() - (address - kBase)) return false;
    std::memcpy(to, pages.data() + (address - kBase), wanted);
    return true;
  };

  const auto path = caisson::sandbox::ReadPath(memory, input.args[0]);
  CAISSON_CHECK(path == ReadSlowly(memory, input.args[0]));
  int count = 0;
  const auto* open = caisson::sandbox::FindPathCalls(SYS_openat2, &count);
  CAISSON_CHECK(open != nullptr && count == 1);
  if (const auto how = caisson::sandbox::ReadOpenHow(memory, *open, input.args))
    CAISSON_CHECK(!caisson::sandbox::OpensForWriting(how->flags) || (how->flags & O_PATH) == 0);
  reads = 0;
  if (const auto bound = caisson::sandbox::ReadBoundPath(memory, input.args))
    CAISSON_CHECK(!bound->empty() && bound->size() <= 108 && bound->find('\0') == std::string::npos);
  constexpr int32_t kCalls[] = {SYS_connect, SYS_sendto, SYS_sendmsg, SYS_sendmmsg};
  const AddressCall* call = caisson::sandbox::FindAddressCall(kCalls[input.selector % 4]);
  CAISSON_CHECK(call != nullptr);
  reads = 0;
  if (const auto peer = caisson::sandbox::FindOutsidePeer(memory, *call, input.args)) CheckPeer(*peer);
  CAISSON_CHECK(!caisson::sandbox::AllocatesMoreThan(std::numeric_limits<int64_t>::max(), input.args) ||
                input.args[2] + input.args[3] > uint64_t{std::numeric_limits<int64_t>::max()});
  return 0;
}
