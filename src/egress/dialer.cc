#include "egress/dialer.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/mutation.h"
#include "egress/resolver.h"

namespace caisson::egress {

namespace {
constexpr size_t kMaxKnown = 1024;
constexpr uint32_t kMaxTtl = 60;
}  // namespace

Dialer::Dialer(Loop& loop, const network::RuleSet& rules, const network::AddressRules& addresses, UniqueFd resolver,
               UniqueFd route)
    : rules_(rules), addresses_(addresses), resolver_(std::move(resolver)), route_(std::move(route)) {
  source_ = {this, 0};
  loop.Watch(resolver_.get(), EPOLLIN, &source_);
}

void Dialer::Resolve(const network::Host& host, uint16_t port, Callback callback) {
  if (host.address) return callback(Judge({*host.address}, port));
  const auto known = known_.find(host.name);
  if (known != known_.end() && known->second.until > MonotonicNanos())
    return callback(Judge(known->second.addresses, port));
  for (auto& [id, waiting] : waiting_) {
    if (waiting.name != host.name) continue;
    waiting.callbacks.emplace_back(port, std::move(callback));
    return;
  }
  Question question;
  question.id = next_id_++;
  question.name = host.name;
  if (!alive_ || !control::SendFrame(resolver_.get(), control::Pack(question), {}, MSG_DONTWAIT)) {
    Resolved failed;
    failed.reason = "resolver_failed";
    return callback(failed);
  }
  Waiting& waiting = waiting_[question.id];
  waiting.name = host.name;
  waiting.callbacks.emplace_back(port, std::move(callback));
}

void Dialer::Ready(unsigned, uint32_t) {
  Result<control::Frame> frame = control::ReceiveFrame(resolver_.get(), MSG_DONTWAIT);
  if (!frame && frame.error().errno_value == EAGAIN) return;
  Answer answer;
  if (!frame || !control::Unpack(frame->bytes, answer) || answer.addresses.size() % 16 != 0) {
    alive_ = false;  // the egress process ends when the resolver is gone
    return;
  }
  const auto found = waiting_.find(answer.id);
  if (found == waiting_.end()) return;
  const Waiting waiting = std::move(found->second);
  waiting_.erase(found);
  std::vector<network::Address> addresses;
  for (size_t at = 0; at < answer.addresses.size(); at += 16)
    addresses.push_back(network::Address::FromBytes(answer.addresses.data() + at));
  if (!addresses.empty()) {
    if (known_.size() >= kMaxKnown) known_.clear();
    known_[waiting.name] = {addresses, MonotonicNanos() + int64_t{std::min(answer.ttl, kMaxTtl)} * 1'000'000'000};
  }
#ifdef CAISSON_MUTATIONS
  // Judges one answer and dials the next.
  if (CAISSON_LEFT_OUT("checked_addresses")) {
    known_.clear();
    if (!waiting.again && Judge(addresses, waiting.callbacks[0].first).reason.empty()) {
      Question question;
      question.id = next_id_++;
      question.name = waiting.name;
      (void)control::SendFrame(resolver_.get(), control::Pack(question), {}, MSG_DONTWAIT);
      waiting_[question.id] = {waiting.name, waiting.callbacks, true};
      return;
    }
    Resolved unjudged;
    unjudged.addresses = addresses;
    for (const auto& [port, callback] : waiting.callbacks) callback(unjudged);
    return;
  }
#endif
  for (const auto& [port, callback] : waiting.callbacks) {
    Resolved resolved = Judge(addresses, port);
    if (addresses.empty()) resolved.reason = answer.failed != 0 ? "resolver_failed" : "no_address";
    callback(resolved);
  }
}

Resolved Dialer::Judge(const std::vector<network::Address>& addresses, uint16_t port) {
  Resolved resolved;
  for (const network::Address& address : addresses) {
    if (CAISSON_LEFT_OUT("judged_addresses")) break;
    resolved.address = address.Text();
    if (const network::Rule* denied = rules_.FindDenied(address, port)) {
      resolved.reason = "denied_by_rule";
      resolved.rule = denied->label;
      return resolved;
    }
    if (!addresses_.Allows(address)) {
      resolved.reason = std::string("address_") + network::ClassName(network::Classify(address));
      return resolved;
    }
    if (!addresses_.Grants(address) && IsOwn(address)) {
      resolved.reason = "address_own";
      return resolved;
    }
  }
  resolved.address.clear();
  resolved.addresses = addresses;
  return resolved;
}

// Asks the kernel for the route: the kernel knows the current addresses of every interface, including those of local
// route tables.
bool Dialer::IsOwn(const network::Address& address) {
  const bool four = address.is_ipv4();
  struct {
    struct nlmsghdr header;
    struct rtmsg route;
    struct rtattr attribute;
    uint8_t destination[16];
  } request{};
  const uint32_t size = four ? 4 : 16;
  request.header.nlmsg_len = static_cast<uint32_t>(offsetof(decltype(request), destination)) + size;
  request.header.nlmsg_type = RTM_GETROUTE;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.route.rtm_family = four ? AF_INET : AF_INET6;
  request.route.rtm_dst_len = static_cast<uint8_t>(size * 8);
  request.attribute.rta_type = RTA_DST;
  request.attribute.rta_len = static_cast<uint16_t>(RTA_LENGTH(size));
  std::memcpy(request.destination, address.bytes.data() + (four ? 12 : 0), size);
  alignas(struct nlmsghdr) char answer[4096];
  if (::send(route_.get(), &request, request.header.nlmsg_len, 0) < 0) return true;
  // The kernel has already answered inside send.
  const ssize_t got = ::recv(route_.get(), answer, sizeof(answer), MSG_DONTWAIT);
  if (got < static_cast<ssize_t>(sizeof(struct nlmsghdr))) return true;
  struct nlmsghdr header {};
  std::memcpy(&header, answer, sizeof(header));
  if (header.nlmsg_type == NLMSG_ERROR) return false;  // no route: dialling will report it
  if (header.nlmsg_type != RTM_NEWROUTE || got < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(struct rtmsg)))) return true;
  struct rtmsg route {};
  std::memcpy(&route, answer + NLMSG_HDRLEN, sizeof(route));
  return route.rtm_type != RTN_UNICAST;
}

}  // namespace caisson::egress
