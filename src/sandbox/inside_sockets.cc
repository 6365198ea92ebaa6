#include "sandbox/inside_sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "linux/files.h"
#include "sandbox/control.h"

namespace caisson::sandbox {

namespace {

constexpr size_t kStock = 16;
static_assert(kStock <= kMaxHandoverFds);

// The only packet that the short-lived process sends back.
struct Answer {
  int32_t error;
};

// Runs: the process that has entered the namespace, between fork and its end: it must not allocate.
int AddAddress(int netlink, uint32_t address, uint8_t bits) {
  struct {
    struct nlmsghdr header;
    struct ifaddrmsg body;
    struct rtattr local_header;
    uint32_t local;
    struct rtattr address_header;
    uint32_t address;
  } request{};
  static_assert(sizeof(request.body) % RTA_ALIGNTO == 0);
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_NEWADDR;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
  request.body.ifa_family = AF_INET;
  request.body.ifa_prefixlen = bits;
  request.body.ifa_scope = RT_SCOPE_UNIVERSE;
  request.body.ifa_index = 1;  // loopback is the first interface of every network namespace
  request.local_header = {RTA_LENGTH(sizeof(uint32_t)), IFA_LOCAL};
  request.address_header = {RTA_LENGTH(sizeof(uint32_t)), IFA_ADDRESS};
  request.local = request.address = htonl(address);
  if (::send(netlink, &request, sizeof(request), 0) != static_cast<ssize_t>(sizeof(request))) return errno;
  alignas(nlmsghdr) char reply[1024];
  const ssize_t size = ::recv(netlink, reply, sizeof(reply), 0);
  if (size < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(struct nlmsgerr)))) return size < 0 ? errno : EPROTO;
  const auto* header = reinterpret_cast<const struct nlmsghdr*>(reply);
  if (header->nlmsg_type != NLMSG_ERROR) return EPROTO;
  const int error = -reinterpret_cast<const struct nlmsgerr*>(NLMSG_DATA(header))->error;
  return error == EEXIST ? 0 : error;  // two rules may name one address
}

int AddAll(const Network& network) {
  const int netlink = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (netlink < 0) return errno;
  // An address with its prefix on loopback makes the whole range local. The first address after the network's is ours.
  int error = AddAddress(netlink, network.pool + 1, network.pool_bits);
  for (const uint32_t address : network.addresses) {
    if (error == 0) error = AddAddress(netlink, address, 32);
  }
  ::close(netlink);
  return error;
}

int Enter(int user, int network) {
  if (user >= 0 && ::setns(user, CLONE_NEWUSER) != 0) return errno;
  return ::setns(network, CLONE_NEWNET) == 0 ? 0 : errno;
}

[[noreturn]] void MakeAndSend(int channel, int user, int network_namespace, const Network* addresses, int family,
                              size_t count) {
  Answer answer{Enter(user, network_namespace)};
  if (answer.error == 0 && addresses != nullptr) answer.error = AddAll(*addresses);
  int fds[kMaxHandoverFds];
  size_t made = 0;
  while (answer.error == 0 && made < count) {
    fds[made] = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fds[made] < 0) {
      answer.error = errno;
    } else {
      ++made;
    }
  }
  if (answer.error != 0) made = 0;
  ::_exit(SendWithDescriptors(channel, &answer, sizeof(answer), fds, made) ? 0 : 1);
}

}  // namespace

Result<InsideSockets> InsideSockets::Of(pid_t pid) {
  const std::string directory = "/proc/" + std::to_string(pid) + "/ns/";
  InsideSockets sockets;
  // Root may enter any network namespace. An ordinary user may enter a network namespace that belongs to one of the
  // user's own user namespaces, after entering that user namespace.
  if (::geteuid() != 0) {
    CAISSON_TRY(sockets.user_, linux_sys::Open(directory + "user", O_RDONLY));
  }
  CAISSON_TRY(sockets.network_, linux_sys::Open(directory + "net", O_RDONLY));
  return sockets;
}

Status InsideSockets::AddAddresses(const Network& network) {
  CAISSON_TRY(stock_, MakeInside(&network, AF_INET, kStock));
  return {};
}

Result<UniqueFd> InsideSockets::Take() {
  if (stock_.empty()) {
    CAISSON_TRY(stock_, MakeInside(nullptr, AF_INET, kStock));
  }
  UniqueFd socket = std::move(stock_.back());
  stock_.pop_back();
  return socket;
}

Result<UniqueFd> InsideSockets::MakeIpv6() const {
  CAISSON_TRY(std::vector<UniqueFd> sockets, MakeInside(nullptr, AF_INET6, 1));
  return std::move(sockets[0]);
}

Result<std::vector<UniqueFd>> InsideSockets::MakeInside(const Network* addresses, int family, size_t count) const {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return Error::System(errno, "make a socket");
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return Error::System(errno, "fork to enter the network of the sandbox");
  if (pid == 0) MakeAndSend(theirs.get(), user_.get(), network_.get(), addresses, family, count);
  theirs.Reset();
  Answer answer{};
  int fds[kMaxHandoverFds];
  const int taken = TakeWithDescriptors(ours.get(), &answer, sizeof(answer), fds);
  const int error = taken < 0 ? errno : answer.error;
  std::vector<UniqueFd> sockets;
  for (int i = 0; i < taken; ++i) sockets.emplace_back(fds[i]);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (error != 0) return Error::System(error, "make sockets in the network of the sandbox");
  if (sockets.size() != count) return Error::System(EPROTO, "make sockets in the network of the sandbox");
  return sockets;
}

}  // namespace caisson::sandbox
