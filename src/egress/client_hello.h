// Reads the server name from the first bytes of a TLS connection. The client sends these bytes in clear text, and they
// are hostile.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace caisson::egress {

// The limit for everything a client sends up to the end of its ClientHello, record headers included. Post-quantum key
// shares make it about 2 KiB; no known client comes near the limit.
inline constexpr size_t kMaxClientHelloBytes = 16384;

struct ClientHello {
  enum class State : uint8_t {
    kMore,  // the bytes so far are the beginning of a ClientHello
    kWhole,
    kNotTls,   // another protocol, or malformed
    kNoName,   // the ClientHello has no server name
    kBadName,  // two names, or an invalid one
    kOversized,
  };
  State state = State::kMore;
  std::string name;  // in lower case; set when kWhole
  size_t size = 0;   // number of bytes up to its end; set when kWhole
};

// A ClientHello may be spread over any number of records. `bytes` holds all bytes since the connection began.
ClientHello ParseClientHello(std::span<const uint8_t> bytes);

// Watches a TLS connection from its first ClientHello, which was judged already, to the server's first answer. A server
// may ask for a second ClientHello (HelloRetryRequest, RFC 8446 section 4.1.4) and then reads the name from the second
// one, so the second must carry the same name. Nothing later in a connection names a server in clear text.
class SecondHello {
 public:
  // `size`: bytes of the first ClientHello.
  SecondHello(std::string name, size_t size) : name_(std::move(name)), left_(size) {}

  struct Verdict {
    size_t forward = 0;                                    // number of leading input bytes that may be forwarded
    ClientHello::State state = ClientHello::State::kMore;  // not kMore or kWhole: refused
    bool mismatch = false;                                 // refused: a second ClientHello for another name
  };
  // Judges bytes of the client. The caller passes bytes that were not forwarded again, together with more.
  Verdict Judge(std::span<const uint8_t> bytes);
  // Reads the beginning of the server's first bytes. Returns false while more of them are needed.
  bool ReadAnswer(std::span<const uint8_t> bytes);

  bool awaits_answer() const { return state_ == State::kUnanswered; }
  // Nothing more can be refused: the handshake goes on without a second ClientHello, or after it.
  bool is_over() const { return state_ == State::kOver; }
  // The client has begun a second ClientHello that the server asked for.
  bool has_begun() const { return begun_; }

 private:
  enum class State : uint8_t { kUnanswered, kRetry, kOver };

  const std::string name_;
  size_t left_;  // bytes of the first ClientHello or of another record that may pass
  State state_ = State::kUnanswered;
  bool begun_ = false;
};

}  // namespace caisson::egress
