#include "egress/process.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/words.h"
#include "egress/confinement.h"
#include "egress/control/messages.h"
#include "egress/credentials.h"
#include "egress/dialer.h"
#include "egress/dns_server.h"
#include "egress/event_log.h"
#include "egress/loop.h"
#include "egress/names.h"
#include "egress/relay.h"
#include "egress/resolver.h"
#include "egress/tls.h"
#include "network/name.h"
#include "network/rule.h"

namespace caisson::egress {
namespace {

using control::Kind;

// Descriptors besides the two of each connection: listeners (also those of address rules), DNS sockets and those of the
// process itself.
constexpr uint64_t kMaxAddressRules = 256;
constexpr size_t kMaxCredentials = 32;
constexpr uint64_t kMaxPorts = 64;  // of the host, and forwards
constexpr uint64_t kOtherDescriptors = Names::kMaxOpenings + kMaxAddressRules + 2 * kMaxPorts + 64;
constexpr uint64_t kMemoryBytes = uint64_t{256} << 20;

struct Configuration {
  control::Settings settings;
  network::RuleSet rules;
  std::vector<network::RuleText> allow, deny;  // what `rules` is made of
  network::AddressRules addresses;
  ResolverSettings resolver;
  UniqueFd dns_udp, dns_tcp, proxy;
  std::vector<std::pair<control::HostPort, UniqueFd>> host_ports;
  std::vector<std::pair<control::Forward, UniqueFd>> forwards;
  // The secrets are read when the resolver has been forked, so that it has none of them.
  std::vector<std::pair<control::Credential, std::vector<UniqueFd>>> bound;
  Credentials credentials;
  std::unique_ptr<Tls> tls;  // only with credentials
  uint32_t ask_wait_ms = 0;  // 0: no person can be asked
};

Error Misplaced() { return Error::Invalid("a frame of the configuration is malformed"); }

Status CheckSettings(const control::Settings& settings) {
  if (settings.pool_bits < 8 || settings.pool_bits > 30) return Error::Invalid("the pool is no range of addresses");
  const uint64_t size = uint64_t{1} << (32 - settings.pool_bits);
  if (settings.pool % size != 0 || settings.reserved_addresses >= size)
    return Error::Invalid("the pool is no range of addresses");
  if (settings.max_connections == 0 || settings.max_connections > 65536 || settings.connections_per_second == 0 ||
      settings.first_bytes_ms == 0 || settings.connect_ms == 0)
    return Error::Invalid("a limit is out of range");
  return {};
}

// Reads every frame up to Start. The owner is trusted; the reader still names a mistake in a frame instead of guessing.
class ConfigurationReader {
 public:
  explicit ConfigurationReader(int control) : control_(control) {}

  Result<Configuration> Read() {
    for (size_t count = 0; count < control::kMaxConfigurationFrames; ++count) {
      CAISSON_TRY(control::Frame frame, control::ReceiveFrame(control_, 0));
      if (frame.bytes.empty()) return Error::Invalid("the owner is gone");
      if (frame.kind() == Kind::kStart) return Finish();
      CAISSON_TRY_VOID(Take(std::move(frame)));
    }
    return Error::Invalid("the configuration is too long");
  }

 private:
  Status Take(control::Frame frame) {
    const auto is = [&frame](auto& message) { return control::Unpack(frame.bytes, message); };
    const size_t fds = frame.fds.size();
    control::Rule rule;
    control::Grant grant;
    control::HostEntry host;
    control::Nameserver nameserver;
    control::DnsSockets dns;
    control::ProxyListener proxy;
    control::HostPort host_port;
    control::Forward forward;
    control::Credential credential;
    control::Attended attended;
    control::MakeAuthority authority;
    if (fds == 0 && is(configuration_.settings)) return CheckSettings(configuration_.settings);
    if (fds == 0 && is(rule)) {
      (rule.allow != 0 ? configuration_.allow : configuration_.deny).push_back({rule.text, rule.label});
    } else if (fds == 0 && is(grant)) {
      granted_.push_back(grant.range);
    } else if (fds == 0 && is(host)) {
      const auto name = network::NormalizeName(host.name);
      const auto address = network::Address::Parse(host.address);
      if (!name || !address) return Error::Invalid(Quoted(host.name + " " + host.address) + " is no host entry");
      configuration_.resolver.hosts.emplace(*name, *address);
    } else if (fds == 0 && is(nameserver)) {
      const auto address = network::Address::Parse(nameserver.address);
      if (!address || nameserver.port == 0) return Error::Invalid(Quoted(nameserver.address) + " is no name server");
      configuration_.resolver.nameservers.emplace_back(*address, nameserver.port);
    } else if (fds == 2 && is(dns) && !configuration_.dns_udp) {
      configuration_.dns_udp = std::move(frame.fds[0]);
      configuration_.dns_tcp = std::move(frame.fds[1]);
    } else if (fds == 1 && is(proxy) && !configuration_.proxy) {
      configuration_.proxy = std::move(frame.fds[0]);
    } else if (fds == 1 && is(host_port) && configuration_.host_ports.size() < kMaxPorts) {
      configuration_.host_ports.emplace_back(host_port, std::move(frame.fds[0]));
    } else if (fds == 1 && is(forward) && configuration_.forwards.size() < kMaxPorts) {
      configuration_.forwards.emplace_back(forward, std::move(frame.fds[0]));
    } else if (fds >= 1 && is(credential) && configuration_.bound.size() < kMaxCredentials) {
      configuration_.bound.emplace_back(std::move(credential), std::move(frame.fds));
    } else if (fds == 0 && is(attended)) {
      configuration_.ask_wait_ms = attended.wait_ms;
    } else if (fds == 0 && is(authority) && !configuration_.tls) {
      return MakeAuthority();
    } else {
      return Misplaced();
    }
    return {};
  }

  Status MakeAuthority() {
    std::vector<std::string> hosts;
    for (const auto& [credential, fds] : configuration_.bound) hosts.push_back(credential.host);
    CAISSON_TRY(configuration_.tls, Tls::Make(hosts));
    UniqueFd file(::memfd_create("authority", MFD_CLOEXEC));
    const std::string& pem = configuration_.tls->authority_pem();
    if (!file || ::write(file.get(), pem.data(), pem.size()) != static_cast<ssize_t>(pem.size()))
      return Error::System(errno, "write the certificate of the authority");
    return control::SendFrame(control_, control::Pack(control::Authority()), {file.get()}, 0);
  }

  Result<Configuration> Finish() {
    if (!configuration_.bound.empty() && !configuration_.tls)
      return Error::Invalid("the credentials have no authority");
    CAISSON_TRY(configuration_.rules, network::RuleSet::Make(configuration_.allow, configuration_.deny));
    CAISSON_TRY(configuration_.addresses, network::AddressRules::Make(granted_));
    if (!configuration_.dns_udp) return Error::Invalid("the DNS sockets are missing");
    const std::vector<network::Rule>& rules = configuration_.rules.allow();
    const auto addresses = std::count_if(rules.begin(), rules.end(), [](const network::Rule& rule) {
      return rule.match == network::Rule::Match::kAddress;
    });
    if (static_cast<uint64_t>(addresses) > kMaxAddressRules) return Error::Invalid("too many rules allow addresses");
    if (configuration_.resolver.nameservers.empty()) AddSystemSettings(configuration_.resolver);
    return std::move(configuration_);
  }

  int control_;
  Configuration configuration_;
  std::vector<std::string> granted_;
};

// Forks the resolver and returns this process's end of the connection to it.
Result<UniqueFd> StartResolver(Configuration& configuration) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return Error::System(errno, "make a socket");
  UniqueFd ours(ends[0]), theirs(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return Error::System(errno, "start the resolver");
  if (pid > 0) {
    theirs.Reset();
    // The resolver's first frame says that its walls are in place; without it no question may be answered.
    CAISSON_TRY(const control::Frame frame, control::ReceiveFrame(ours.get(), 0));
    Answer confined;
    if (!control::Unpack(frame.bytes, confined)) return Error::Unsupported("the resolver cannot shut itself in");
    return ours;
  }
  configuration.tls.reset();  // it needs no key
  // The resolver keeps no descriptor of the relay.
  const int socket = theirs.get() == 3 ? 3 : ::dup3(theirs.get(), 3, O_CLOEXEC);
  if (socket != 3 || ::close_range(4, ~0U, 0) != 0) ::_exit(1);
  for (int fd = 0; fd < 3; ++fd) ::close(fd);
  Confinement confinement;
  confinement.role = Role::kResolver;
  confinement.uid = configuration.settings.uid;
  confinement.gid = configuration.settings.gid;
  confinement.descriptors = 512;
  confinement.memory_bytes = kMemoryBytes;
  if (!Confine(confinement) || !control::SendFrame(socket, control::Pack(Answer()), {}, 0)) ::_exit(1);
  RunResolver(socket, configuration.resolver);
  ::_exit(0);
}

class Process : public Waiter {
 public:
  Process(int control, Configuration configuration, UniqueFd resolver, UniqueFd route)
      : control_(control),
        configuration_(std::move(configuration)),
        events_(control),
        names_(configuration_.rules, configuration_.settings.pool + configuration_.settings.reserved_addresses,
               LastAddress(configuration_.settings), configuration_.settings.names_per_wildcard),
        dialer_(loop_, configuration_.rules, configuration_.addresses, std::move(resolver), std::move(route)),
        relay_(loop_, configuration_.settings, configuration_.rules, names_, dialer_, events_,
               configuration_.credentials, configuration_.tls.get()),
        dns_(loop_, configuration_.rules, names_, relay_, events_) {
    source_ = {this, 0};
    // Edge-triggered: whenever the owner has read, the loop tries again to send unsent frames.
    loop_.Watch(control_, EPOLLIN | EPOLLOUT | EPOLLET, &source_);
  }

  int Run(int landlock_abi) {
    control::Ready ready;
    ready.landlock_abi = static_cast<uint8_t>(landlock_abi);
    events_.Send(control::Pack(ready));
    dns_.Serve(std::move(configuration_.dns_udp), std::move(configuration_.dns_tcp));
    dns_.BindAddresses();
    relay_.questions().Attend(configuration_.ask_wait_ms);
    if (configuration_.proxy) relay_.Listen(std::move(configuration_.proxy), std::nullopt);
    for (auto& [message, listener] : configuration_.host_ports)
      relay_.Listen(std::move(listener), Destination::HostPort(message.port));
    for (auto& [message, listener] : configuration_.forwards)
      relay_.Forward(std::move(listener), message.port, message.inside_port);
    while (!over_ && dialer_.alive()) {
      loop_.Step();
      if (settling_ && (!relay_.has_connections() || loop_.deadline(*this) == 0)) Settle();
    }
    if (over_ && !finished_) return 0;  // the owner is gone, so no process can read the record
    relay_.CloseAll("finished");
    events_.Finish();
    return over_ ? 0 : 1;
  }

  void Ready(unsigned, uint32_t) override {
    events_.Flush();
    while (!over_) {
      Result<control::Frame> received = control::ReceiveFrame(control_, MSG_DONTWAIT);
      if (!received && received.error().errno_value == EAGAIN) return;
      over_ = !received || !Take(*std::move(received));
    }
  }

 private:
  // Returns false when the work is over.
  bool Take(control::Frame frame) {
    const auto is = [&frame](auto& message) { return control::Unpack(frame.bytes, message); };
    control::Listener listener;
    control::InsideSocket inside;
    control::Forward forward;
    control::Unforward unforward;
    control::Verdict verdict;
    control::Rule rule;
    control::Finish finish;
    control::Settle settle;
    if (is(listener)) {
      dns_.TakeListener(listener, std::move(frame.fds));
    } else if (is(inside)) {
      relay_.TakeInsideSocket(inside, std::move(frame.fds));
    } else if (is(forward) && frame.fds.size() == 1) {
      relay_.Forward(std::move(frame.fds[0]), forward.port, forward.inside_port);
    } else if (is(unforward)) {
      relay_.EndForward(unforward.port);
    } else if (is(verdict)) {
      relay_.questions().Take(verdict);
    } else if (is(rule) && rule.allow != 0) {
      Allow(rule);
    } else if (is(settle)) {
      BeginToSettle(settle);
    } else {
      finished_ = is(finish);
      return false;
    }
    return true;
  }

  // The owner has judged the rule. One that still does not fit allows nothing.
  void Allow(const control::Rule& rule) {
    if (configuration_.allow.size() >= control::kMaxConfigurationFrames) return;
    configuration_.allow.push_back({rule.text, rule.label});
    Result<network::RuleSet> rules = network::RuleSet::Make(configuration_.allow, configuration_.deny);
    if (!rules) return configuration_.allow.pop_back();
    configuration_.rules = *std::move(rules);  // all parts refer to this object; earlier rules keep their places
    dns_.RulesChanged();
  }

  void BeginToSettle(const control::Settle& settle) {
    dns_.Drain();
    relay_.AcceptWaiting();
    settling_ = true;
    // The loop clears the deadline when it has passed.
    loop_.SetDeadline(*this, MonotonicNanos() + int64_t{settle.wait_ms} * 1'000'000 + 1);
  }

  void Settle() {
    settling_ = false;
    loop_.SetDeadline(*this, 0);
    relay_.CloseConnections("finished");
    events_.Settle();
  }

  // Returns the end of the pool, exclusive, so that its broadcast address is never handed out.
  static uint32_t LastAddress(const control::Settings& settings) {
    return settings.pool + static_cast<uint32_t>((uint64_t{1} << (32 - settings.pool_bits)) - 1);
  }

  int control_;
  Configuration configuration_;
  Loop loop_;
  EventLog events_;
  Names names_;
  Dialer dialer_;
  Relay relay_;
  DnsServer dns_;
  Source source_;
  bool over_ = false, finished_ = false, settling_ = false;
};

Result<std::string> ReadSmall(int fd, size_t most) {
  std::string bytes(most + 1, '\0');
  const ssize_t size = ::pread(fd, bytes.data(), bytes.size(), 0);
  if (size < 0) return Error::System(errno, "read the file of a credential");
  if (static_cast<size_t>(size) > most) return Error::Invalid("the file of a credential is too long");
  bytes.resize(static_cast<size_t>(size));
  return bytes;
}

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find(' ', start), text.size());
    if (end > start) words.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return words;
}

Status ReadSecrets(Configuration& configuration) {
  constexpr size_t kMaxSecretBytes = 8192, kMaxCaBytes = size_t{1} << 20;
  std::map<std::string, std::string> extra;
  for (auto& [message, fds] : configuration.bound) {
    BoundSecret bound;
    bound.name = message.name;
    bound.host = message.host;
    bound.port = message.port;
    bound.path = message.path;
    bound.header = message.header;
    std::transform(bound.header.begin(), bound.header.end(), bound.header.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    bound.value = message.value;
    bound.placeholder = message.placeholder;
    bound.methods = Words(message.methods);
    bound.paths = Words(message.paths);
    bound.git_read_only = message.git_read_only != 0;
    if (bound.placeholder.size() < 16) return Error::Invalid("the placeholder of a credential is too short");
    CAISSON_TRY(std::string bytes, ReadSmall(fds[0].get(), kMaxSecretBytes));
    Result<std::string> secret = CleanSecret(bytes);
    ::explicit_bzero(bytes.data(), bytes.size());
    if (!secret) return std::move(secret).error().In("credential " + message.name);
    bound.secret = *std::move(secret);
    if (fds.size() > 1) {
      CAISSON_TRY(extra[message.host], ReadSmall(fds[1].get(), kMaxCaBytes));
    }
    configuration.credentials.Add(std::move(bound));
  }
  configuration.bound.clear();
  if (configuration.tls) return configuration.tls->Trust(extra);
  return {};
}

Result<std::pair<std::unique_ptr<Process>, int>> Prepare(int control) {
  CAISSON_TRY(Configuration configuration, ConfigurationReader(control).Read());
  UniqueFd route(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!route) return Error::System(errno, "open a netlink socket");
  CAISSON_TRY(UniqueFd resolver, StartResolver(configuration));
  CAISSON_TRY_VOID(ReadSecrets(configuration));
  Confinement confinement;
  confinement.terminates_tls = configuration.tls != nullptr;
  confinement.uid = configuration.settings.uid;
  confinement.gid = configuration.settings.gid;
  confinement.descriptors = uint64_t{configuration.settings.max_connections} * 2 + kOtherDescriptors;
  confinement.memory_bytes = kMemoryBytes;
  auto process = std::make_unique<Process>(control, std::move(configuration), std::move(resolver), std::move(route));
  CAISSON_TRY(const int abi, Confine(confinement));
  return std::make_pair(std::move(process), abi);
}

}  // namespace

int RunEgress(int control) {
  auto prepared = Prepare(control);
  if (!prepared) {
    control::Fault fault;
    fault.text = prepared.error().message;
    (void)control::SendFrame(control, control::Pack(fault), {}, 0);
    return 1;
  }
  return prepared->first->Run(prepared->second);
}

}  // namespace caisson::egress
