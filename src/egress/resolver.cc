#include "egress/resolver.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <string_view>

#include "base/clock.h"
#include "egress/dns.h"
#include "egress/dns_reply.h"
#include "linux/files.h"
#include "network/name.h"

namespace caisson::egress {
namespace {

constexpr int64_t kTryNanos = 2'500'000'000;
constexpr size_t kRounds = 2;  // how often each server is asked
constexpr size_t kMaxLookups = 128;
constexpr uint32_t kHostsTtl = 60;

// One of the two questions of a look-up, for A or AAAA.
struct Attempt {
  uint16_t type = 0;
  uint16_t id = 0;
  UniqueFd socket;  // connected to one server, from a port that the kernel chose; invalid: over
  size_t tries = 0;
  int64_t deadline = 0;
};

struct Lookup {
  uint32_t id = 0;
  std::string name;
  Attempt attempts[2];
  std::vector<network::Address> addresses;
  uint32_t ttl = UINT32_MAX;
  bool answered = false;  // at least one server answered
};

class Resolver {
 public:
  Resolver(int socket, const ResolverSettings& settings) : socket_(socket), settings_(settings) {}

  void Run() {
    for (;;) {
      std::vector<struct pollfd> waits = {{socket_, POLLIN, 0}};
      int64_t next = INT64_MAX;
      for (Lookup& lookup : lookups_) {
        for (Attempt& attempt : lookup.attempts) {
          if (!attempt.socket) continue;
          waits.push_back({attempt.socket.get(), POLLIN, 0});
          next = std::min(next, attempt.deadline);
        }
      }
      const int64_t wait = next == INT64_MAX ? -1 : std::max<int64_t>(0, (next - MonotonicNanos()) / 1'000'000 + 1);
      if (::poll(waits.data(), waits.size(), static_cast<int>(wait)) < 0 && errno != EINTR) return;
      size_t at = 1;
      for (Lookup& lookup : lookups_) {
        for (Attempt& attempt : lookup.attempts) {
          if (!attempt.socket) continue;
          if (waits[at++].revents != 0) Read(lookup, attempt);
          if (attempt.socket && MonotonicNanos() >= attempt.deadline) Ask(lookup, attempt);
        }
      }
      for (auto lookup = lookups_.begin(); lookup != lookups_.end();) {
        const bool over = !lookup->attempts[0].socket && !lookup->attempts[1].socket;
        if (over) Reply(*lookup);
        lookup = over ? lookups_.erase(lookup) : std::next(lookup);
      }
      if (waits[0].revents != 0 && !TakeQuestion()) return;
    }
  }

 private:
  bool TakeQuestion() {
    Result<control::Frame> frame = control::ReceiveFrame(socket_, MSG_DONTWAIT);
    if (!frame) return frame.error().errno_value == EAGAIN;
    Question question;
    if (frame->bytes.empty() || !control::Unpack(frame->bytes, question)) return false;
    Lookup lookup;
    lookup.id = question.id;
    const Result<std::string> name = network::NormalizeName(question.name);
    if (!name || lookups_.size() >= kMaxLookups) {
      Reply(lookup);
      return true;
    }
    lookup.name = *name;
    const auto [from, to] = settings_.hosts.equal_range(lookup.name);
    for (auto host = from; host != to; ++host) lookup.addresses.push_back(host->second);
    if (!lookup.addresses.empty()) {
      lookup.ttl = kHostsTtl;
      Reply(lookup);
      return true;
    }
    lookup.attempts[0].type = kTypeA;
    lookup.attempts[1].type = kTypeAaaa;
    lookups_.push_back(std::move(lookup));
    for (Attempt& attempt : lookups_.back().attempts) Ask(lookups_.back(), attempt);
    if (!lookups_.back().attempts[0].socket && !lookups_.back().attempts[1].socket) {
      Reply(lookups_.back());
      lookups_.pop_back();
    }
    return true;
  }

  // Asks the next server, or gives up when there is none.
  void Ask(const Lookup& lookup, Attempt& attempt) {
    attempt.socket.Reset();
    const auto& servers = settings_.nameservers;
    while (attempt.tries < servers.size() * kRounds) {
      const auto& [address, port] = servers[attempt.tries++ % servers.size()];
      sockaddr_storage storage;
      const socklen_t size = address.ToSockaddr(port, storage);
      UniqueFd fd(::socket(storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!fd || ::connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), size) != 0) continue;
      if (::getrandom(&attempt.id, sizeof(attempt.id), 0) != sizeof(attempt.id)) continue;
      const std::vector<uint8_t> query = MakeQuery(attempt.id, lookup.name, attempt.type);
      if (::send(fd.get(), query.data(), query.size(), MSG_NOSIGNAL) < 0) continue;
      attempt.socket = std::move(fd);
      attempt.deadline = MonotonicNanos() + kTryNanos;
      return;
    }
  }

  void Read(Lookup& lookup, Attempt& attempt) {
    uint8_t packet[4096];
    const ssize_t size = ::recv(attempt.socket.get(), packet, sizeof(packet), 0);
    if (size < 0) {
      if (errno != EAGAIN && errno != EINTR) Ask(lookup, attempt);  // connection refused: no server listens there
      return;
    }
    const DnsReply reply = ParseReply({packet, static_cast<size_t>(size)}, attempt.id, lookup.name, attempt.type);
    if (reply.state == DnsReply::State::kUnrelated) return;
    if (reply.state == DnsReply::State::kFailed) {
      Ask(lookup, attempt);
      return;
    }
    attempt.socket.Reset();
    lookup.answered = true;
    lookup.addresses.insert(attempt.type == kTypeA ? lookup.addresses.begin() : lookup.addresses.end(),
                            reply.addresses.begin(), reply.addresses.end());
    if (!reply.addresses.empty()) lookup.ttl = std::min(lookup.ttl, reply.ttl);
  }

  void Reply(const Lookup& lookup) {
    Answer answer;
    answer.id = lookup.id;
    answer.failed = lookup.addresses.empty() && !lookup.answered ? 1 : 0;
    answer.ttl = lookup.addresses.empty() ? 0 : lookup.ttl;
    for (const network::Address& address : lookup.addresses)
      answer.addresses.append(reinterpret_cast<const char*>(address.bytes.data()), address.bytes.size());
    (void)control::SendFrame(socket_, control::Pack(answer), {}, 0);
  }

  int socket_;
  const ResolverSettings& settings_;
  std::list<Lookup> lookups_;
};

// Returns the words of each line of a small text, without comments.
std::vector<std::vector<std::string>> Words(std::string_view text, std::string_view comments) {
  std::vector<std::vector<std::string>> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find_first_of(comments));
    std::vector<std::string>& words = lines.emplace_back();
    while (!line.empty()) {
      const size_t from = std::min(line.find_first_not_of(" \t\r"), line.size());
      const size_t to = std::min(line.find_first_of(" \t\r", from), line.size());
      if (to > from) words.emplace_back(line.substr(from, to - from));
      line.remove_prefix(to);
    }
  }
  return lines;
}

}  // namespace

void AddSystemSettings(ResolverSettings& settings) {
  constexpr size_t kMaxFileBytes = size_t{1} << 20;
  constexpr size_t kMaxNameservers = 3;
  if (const Result<std::string> text = linux_sys::ReadSmallFile(AT_FDCWD, "/etc/hosts", kMaxFileBytes)) {
    for (const std::vector<std::string>& words : Words(*text, "#")) {
      const std::optional<network::Address> address = words.empty() ? std::nullopt : network::Address::Parse(words[0]);
      for (size_t i = 1; address && i < words.size(); ++i) {
        if (const Result<std::string> name = network::NormalizeName(words[i])) settings.hosts.emplace(*name, *address);
      }
    }
  }
  if (const Result<std::string> text = linux_sys::ReadSmallFile(AT_FDCWD, "/etc/resolv.conf", kMaxFileBytes)) {
    for (const std::vector<std::string>& words : Words(*text, "#;")) {
      if (words.size() < 2 || words[0] != "nameserver" || settings.nameservers.size() >= kMaxNameservers) continue;
      if (const std::optional<network::Address> address = network::Address::Parse(words[1]))
        settings.nameservers.emplace_back(*address, uint16_t{53});
    }
  }
}

void RunResolver(int socket, const ResolverSettings& settings) { Resolver(socket, settings).Run(); }

}  // namespace caisson::egress
