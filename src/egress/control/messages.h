// The messages between the egress process and its owner, over a connected seqpacket socket. One frame is one packet,
// its first byte is its kind, and descriptors travel beside it (SCM_RIGHTS). Numbers are little-endian and of fixed
// width; a text is its length in two bytes followed by its bytes. No field is optional, and a frame with bytes left
// over is refused.
//
// The owner speaks first: Settings, then any number of Rule, Grant, HostEntry, Nameserver, DnsSockets, ProxyListener,
// HostPort and Forward, then Start. The egress process confines itself and answers Ready or Fault. From then on it asks
// for listeners with Bind, which the owner answers with Listener, for sockets with Need, which the owner answers with
// InsideSocket, and reports Events. The owner may send further Forwards and Unforwards, and allow Rules besides those
// that it began with. When a command has ended, the
// owner sends Settle to bring the record up to date, and the egress process answers Settled. Finish asks the egress
// process to send its Totals and exit; it also exits when the connection closes.
//
// SECURITY: the egress process reads bytes from the sandbox and from the internet, so its owner treats every frame from
// it as hostile: a Bind can only ask for an address and a port, and texts are only data for the record.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::egress::control {

inline constexpr size_t kMaxFrameBytes = 8192;
inline constexpr size_t kMaxFrameFds = 2;
inline constexpr size_t kMaxText = 1024;
inline constexpr size_t kMaxConfigurationFrames = 8192;

enum class Kind : uint8_t {
  kSettings = 1,
  kRule = 2,
  kGrant = 3,
  kHostEntry = 4,
  kNameserver = 5,
  kDnsSockets = 6,
  kProxyListener = 7,
  kStart = 8,
  kListener = 9,
  kFinish = 10,
  kSettle = 11,
  kHostPort = 12,
  kForward = 13,
  kUnforward = 14,
  kInsideSocket = 15,
  kCredential = 16,
  kMakeAuthority = 17,
  kAttended = 18,
  kVerdict = 19,
  kReady = 32,
  kBind = 33,
  kEvent = 34,
  kTotals = 35,
  kFault = 36,
  kSettled = 37,
  kNeed = 38,
  kAuthority = 39,
  kAsk = 40,
};

// Owner to egress.

struct Settings {
  static constexpr Kind kKind = Kind::kSettings;
  uint32_t pool = 0xC6120000;  // 198.18.0.0, the first address of the pool
  uint8_t pool_bits = 15;
  uint32_t reserved_addresses = 2;  // at the pool's beginning: the network and the sandbox's own address
  uint32_t uid = 65534;             // root becomes this user
  uint32_t gid = 65534;
  uint32_t max_connections = 256;         // at a time
  uint32_t connections_per_second = 100;  // with a burst of as many
  uint64_t max_bytes = 0;                 // both ways, all connections; 0: no limit
  uint64_t bytes_per_second = 0;          // 0: no limit
  uint32_t names_per_wildcard = 64;
  uint32_t first_bytes_ms = 5000;  // for a ClientHello, an HTTP head or a proxy request
  uint32_t connect_ms = 15000;     // for resolving and connecting

  template <typename Side>
  void Describe(Side& side) {
    side.Number(pool), side.Number(pool_bits), side.Number(reserved_addresses), side.Number(uid), side.Number(gid);
    side.Number(max_connections), side.Number(connections_per_second), side.Number(max_bytes);
    side.Number(bytes_per_second), side.Number(names_per_wildcard), side.Number(first_bytes_ms);
    side.Number(connect_ms);
  }
};

struct Rule {
  static constexpr Kind kKind = Kind::kRule;
  uint8_t allow = 1;  // 0: a deny rule
  std::string text;   // network/rule.h
  std::string label;  // how evidence names it; empty: the text

  template <typename Side>
  void Describe(Side& side) {
    side.Number(allow), side.Text(text), side.Text(label);
  }
};

// A range of addresses that may be dialled although they are not public.
struct Grant {
  static constexpr Kind kKind = Kind::kGrant;
  std::string range;

  template <typename Side>
  void Describe(Side& side) {
    side.Text(range);
  }
};

// An address of a name that is known without DNS, like a line of /etc/hosts.
struct HostEntry {
  static constexpr Kind kKind = Kind::kHostEntry;
  std::string name;
  std::string address;

  template <typename Side>
  void Describe(Side& side) {
    side.Text(name), side.Text(address);
  }
};

// A DNS server that replaces those in /etc/resolv.conf. With at least one of them, /etc/hosts is not read either.
struct Nameserver {
  static constexpr Kind kKind = Kind::kNameserver;
  std::string address;
  uint16_t port = 53;

  template <typename Side>
  void Describe(Side& side) {
    side.Text(address), side.Number(port);
  }
};

// With two descriptors: a bound UDP socket and a listening TCP socket of the sandbox's network namespace.
struct DnsSockets {
  static constexpr Kind kKind = Kind::kDnsSockets;
  template <typename Side>
  void Describe(Side&) {}
};

// With one descriptor: a listening TCP socket that offers the sandbox a proxy with CONNECT and SOCKS5.
struct ProxyListener {
  static constexpr Kind kKind = Kind::kProxyListener;
  template <typename Side>
  void Describe(Side&) {}
};

struct Start {
  static constexpr Kind kKind = Kind::kStart;
  template <typename Side>
  void Describe(Side&) {}
};

// The answer to Bind, with one descriptor, a listening TCP socket, when `error` is 0.
struct Listener {
  static constexpr Kind kKind = Kind::kListener;
  uint32_t id = 0;
  uint32_t error = 0;  // an errno

  template <typename Side>
  void Describe(Side& side) {
    side.Number(id), side.Number(error);
  }
};

// All processes of a command are gone. Connections that they left open may deliver bytes already sent, for at most
// `wait_ms`.
struct Settle {
  static constexpr Kind kKind = Kind::kSettle;
  uint32_t wait_ms = 0;

  template <typename Side>
  void Describe(Side& side) {
    side.Number(wait_ms);
  }
};

// With one descriptor: a TCP socket that listens inside the sandbox at 127.0.0.1 and stands for this port of the host's
// loopback.
struct HostPort {
  static constexpr Kind kKind = Kind::kHostPort;
  uint16_t port = 0;

  template <typename Side>
  void Describe(Side& side) {
    side.Number(port);
  }
};

// With one descriptor: a TCP socket that listens outside. Its connections lead to `inside_port` of the sandbox's
// loopback.
struct Forward {
  static constexpr Kind kKind = Kind::kForward;
  uint16_t port = 0;  // outside, for the record and for Unforward
  uint16_t inside_port = 0;

  template <typename Side>
  void Describe(Side& side) {
    side.Number(port), side.Number(inside_port);
  }
};

// Closes the listener of a Forward; its open connections go on.
struct Unforward {
  static constexpr Kind kKind = Kind::kUnforward;
  uint16_t port = 0;

  template <typename Side>
  void Describe(Side& side) {
    side.Number(port);
  }
};

// With one or two descriptors: a file with the secret, and perhaps one with certificates that are trusted for the host
// besides the machine's. See policy/credentials.h for the meaning of each field.
struct Credential {
  static constexpr Kind kKind = Kind::kCredential;
  std::string name;
  std::string host;
  uint16_t port = 443;
  std::string path;
  std::string header;
  std::string value;
  std::string placeholder;
  std::string methods;  // separated by spaces; empty: all
  std::string paths;    // likewise
  uint8_t git_read_only = 0;

  template <typename Side>
  void Describe(Side& side) {
    side.Text(name), side.Text(host), side.Number(port), side.Text(path), side.Text(header), side.Text(value);
    side.Text(placeholder), side.Text(methods), side.Text(paths), side.Number(git_read_only);
  }
};

// Follows the Credentials: asks for the certificate of their authority, which is answered before Start.
struct MakeAuthority {
  static constexpr Kind kKind = Kind::kMakeAuthority;
  template <typename Side>
  void Describe(Side&) {}
};

// A person can be asked: a name that no rule mentions gets an address, and a connection to it waits for a Verdict.
struct Attended {
  static constexpr Kind kKind = Kind::kAttended;
  uint32_t wait_ms = 60000;  // without a Verdict until then the connection is denied

  template <typename Side>
  void Describe(Side& side) {
    side.Number(wait_ms);
  }
};

// The answer to Ask.
struct Verdict {
  static constexpr Kind kKind = Kind::kVerdict;
  // kDenyOnce: the connections that wait are denied, and the next one is asked about again.
  enum Scope : uint8_t { kDeny, kOnce, kSession, kDenyOnce };
  uint32_t id = 0;
  uint8_t scope = kDeny;

  template <typename Side>
  void Describe(Side& side) {
    side.Number(id), side.Number(scope);
  }
};

// The answer to Need, with one descriptor, an unconnected TCP socket, when `error` is 0.
struct InsideSocket {
  static constexpr Kind kKind = Kind::kInsideSocket;
  uint32_t id = 0;
  uint32_t error = 0;  // an errno

  template <typename Side>
  void Describe(Side& side) {
    side.Number(id), side.Number(error);
  }
};

struct Finish {
  static constexpr Kind kKind = Kind::kFinish;
  template <typename Side>
  void Describe(Side&) {}
};

// Egress to owner.

// All walls are in place and the egress process can answer the first question.
struct Ready {
  static constexpr Kind kKind = Kind::kReady;
  uint8_t landlock_abi = 0;  // 0: this kernel has none; only the filter keeps files away
  template <typename Side>
  void Describe(Side& side) {
    side.Number(landlock_abi);
  }
};

// Asks for a socket that listens at this address in the sandbox: a pool address, or the address of an allow rule.
struct Bind {
  static constexpr Kind kKind = Kind::kBind;
  uint32_t id = 0;
  uint32_t address = 0;  // IPv4, host order
  uint16_t port = 0;
  std::string name;  // the name that the address stands for, for the record

  template <typename Side>
  void Describe(Side& side) {
    side.Number(id), side.Number(address), side.Number(port), side.Text(name);
  }
};

// Asks for a socket of the sandbox's network namespace, for a connection that came in through a Forward.
struct Need {
  static constexpr Kind kKind = Kind::kNeed;
  uint32_t id = 0;
  uint8_t ipv6 = 0;

  template <typename Side>
  void Describe(Side& side) {
    side.Number(id), side.Number(ipv6);
  }
};

// The answer to MakeAuthority, with one descriptor: a file with the certificate as PEM text.
struct Authority {
  static constexpr Kind kKind = Kind::kAuthority;
  template <typename Side>
  void Describe(Side&) {}
};

// Asks whether a destination that no rule mentions may be reached. Equal questions are asked once.
struct Ask {
  static constexpr Kind kKind = Kind::kAsk;
  uint32_t id = 0;
  uint16_t port = 0;
  std::string name;
  std::string protocol;

  template <typename Side>
  void Describe(Side& side) {
    side.Number(id), side.Number(port), side.Text(name), side.Text(protocol);
  }
};

// One lookup or connection that was allowed or denied.
struct Event {
  static constexpr Kind kKind = Kind::kEvent;
  enum What : uint8_t {
    kLookup,   // a DNS question; port, protocol, address and bytes are empty
    kOpened,   // a connection reached its destination
    kClosed,   // the connection ended: bytes and duration are complete
    kRefused,  // a connection that reached no destination
  };
  uint8_t what = kLookup;
  uint8_t allowed = 0;
  uint32_t connection = 0;  // the same number in kOpened and kClosed
  uint32_t count = 1;       // how often; more than 1 in the repetition of an earlier event, at the end
  uint16_t port = 0;
  uint64_t bytes_in = 0;   // to the sandbox
  uint64_t bytes_out = 0;  // from the sandbox
  uint64_t duration_us = 0;
  std::string name;      // other bytes than letters, digits, '-', '_' and '.' are escaped as \NNN
  std::string protocol;  // "tls", "http", "tcp"
  std::string address;   // the address that was dialled, or that caused the refusal
  std::string rule;      // the label of the rule that decided
  std::string reason;    // "allowed", "not_listed", "sni_mismatch", "address_private", …

  template <typename Side>
  void Describe(Side& side) {
    side.Number(what), side.Number(allowed), side.Number(connection), side.Number(count), side.Number(port);
    side.Number(bytes_in), side.Number(bytes_out), side.Number(duration_us);
    side.Text(name), side.Text(protocol), side.Text(address), side.Text(rule), side.Text(reason);
  }
};

// The answer to Settle: every waiting question is answered, no connection is open, and all their events, with the
// counts of equal ones, were sent before this frame. After this frame, an equal denial becomes a new event.
struct Settled {
  static constexpr Kind kKind = Kind::kSettled;
  uint64_t questions_malformed = 0;  // since the last Settled
  uint64_t events_unlisted = 0;      // since the last Settled

  template <typename Side>
  void Describe(Side& side) {
    side.Number(questions_malformed), side.Number(events_unlisted);
  }
};

struct Totals {
  static constexpr Kind kKind = Kind::kTotals;
  uint64_t questions = 0;            // DNS packets
  uint64_t questions_denied = 0;     // names that policy denied
  uint64_t questions_malformed = 0;  // refused because the packet is no question, or dropped
  uint64_t connections = 0;          // connections that reached their destination
  uint64_t refused = 0;              // connections that reached no destination
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  uint64_t events_unlisted = 0;  // denials beyond the number of separate events; the counts above include them

  template <typename Side>
  void Describe(Side& side) {
    side.Number(questions), side.Number(questions_denied), side.Number(questions_malformed), side.Number(connections);
    side.Number(refused), side.Number(bytes_in), side.Number(bytes_out), side.Number(events_unlisted);
  }
};

// The last frame of a process that cannot do its work.
struct Fault {
  static constexpr Kind kKind = Kind::kFault;
  std::string text;

  template <typename Side>
  void Describe(Side& side) {
    side.Text(text);
  }
};

class Packer {
 public:
  explicit Packer(Kind kind) : bytes_(1, static_cast<char>(kind)) {}
  template <typename Integer>
  void Number(Integer& value) {
    for (size_t i = 0; i < sizeof(Integer); ++i) bytes_.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
  // Cuts a text that is too long; texts are only for the record.
  void Text(const std::string& value) {
    const auto size = static_cast<uint16_t>(value.size() < kMaxText ? value.size() : kMaxText);
    Number(size);
    bytes_.append(value, 0, size);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}
  template <typename Integer>
  void Number(Integer& value) {
    uint64_t number = 0;
    if (rest_.size() < sizeof(Integer)) {
      ok_ = false;
      rest_ = {};
      return;
    }
    for (size_t i = 0; i < sizeof(Integer); ++i) number |= uint64_t{static_cast<unsigned char>(rest_[i])} << (8 * i);
    value = static_cast<Integer>(number);
    rest_.remove_prefix(sizeof(Integer));
  }
  void Text(std::string& value) {
    uint16_t size = 0;
    Number(size);
    if (size > kMaxText || size > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return;
    }
    value = std::string(rest_.substr(0, size));
    rest_.remove_prefix(size);
  }
  bool whole() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

template <typename Message>
std::string Pack(Message message) {
  Packer packer(Message::kKind);
  message.Describe(packer);
  return packer.Take();
}

// Returns false when the frame is not exactly one message of this kind.
template <typename Message>
bool Unpack(std::string_view frame, Message& message) {
  if (frame.empty() || frame[0] != static_cast<char>(Message::kKind)) return false;
  Unpacker unpacker(frame.substr(1));
  message.Describe(unpacker);
  return unpacker.whole();
}

struct Frame {
  std::string bytes;  // empty: the other side has closed the connection
  std::vector<UniqueFd> fds;

  Kind kind() const;
};

// `errno_value` is EAGAIN when the socket is full or empty and `flags` has MSG_DONTWAIT.
Status SendFrame(int socket, std::string_view bytes, const std::vector<int>& fds, int flags);
Result<Frame> ReceiveFrame(int socket, int flags);

}  // namespace caisson::egress::control
