// Judges the requests of one plain HTTP connection before they are forwarded: each request must have exactly one
// meaning and must be for the destination's own name. Bytes are forwarded unchanged. The gate follows the framing of
// bodies, so it treats text inside a body that looks like a request as body, and judges the bytes after a body as a
// request.
//
//   400  anything that servers might read differently: a bare LF or CR, control characters, folded lines, white space
//        before a colon, an empty line in front, two of Host, Content-Length or Transfer-Encoding, both of the latter,
//        chunk extensions, a target for another host, a version other than 1.0 and 1.1
//   403  a Host that is not the destination's name; CONNECT
//   431  a head above 32 KiB
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "network/rule.h"

namespace caisson::egress {

inline constexpr size_t kMaxHttpHead = 32768;
inline constexpr size_t kMaxHttpTrailer = 8192;

class HttpGate {
 public:
  // `is_forbidden` says of a whole head that it must not be forwarded.
  HttpGate(network::Host host, uint16_t port, std::function<bool(std::string_view)> is_forbidden = {})
      : host_(std::move(host)), port_(port), is_forbidden_(std::move(is_forbidden)) {}

  struct Verdict {
    size_t forward = 0;       // number of leading input bytes that may be forwarded
    int status = 0;           // not 0: forward nothing more and end the connection with this answer
    const char* reason = "";  // for the record
  };
  // `bytes` follow the bytes that earlier verdicts forwarded. The caller passes bytes that were not forwarded again,
  // together with more.
  Verdict Judge(std::string_view bytes);
  // The same for at most one part: a head, for which it sets `is_head`, a trailer or a piece of a body.
  Verdict JudgePart(std::string_view bytes, bool& is_head);

  // True when the first request asks to become a WebSocket; then nothing more is forwarded until the server has
  // answered.
  bool awaits_upgrade() const { return state_ == State::kUpgrade; }
  // `switched`: the server answered 101, and from then on both sides may send any bytes.
  void AnswerUpgrade(bool switched) { state_ = switched ? State::kOpaque : State::kHead; }
  // True between requests, when a client may close the connection without losing anything.
  bool at_rest() const { return state_ == State::kHead; }

 private:
  enum class State : uint8_t { kHead, kBody, kChunkSize, kChunkData, kChunkEnd, kTrailer, kUpgrade, kOpaque, kRefused };
  struct Fields {
    bool host = false, length = false, chunked = false, upgrade = false, connection_upgrade = false;
    uint64_t body = 0;
  };

  Verdict Refuse(size_t forward, int status, const char* reason);
  // Returns the size of the lines up to and including an empty line, 0 when they are incomplete, SIZE_MAX when
  // malformed.
  size_t FindEmptyLine(std::string_view bytes);
  bool JudgeHead(std::string_view head, Verdict& verdict);
  bool JudgeRequestLine(std::string_view line, Verdict& verdict);
  bool JudgeField(std::string_view line, Fields& fields, Verdict& verdict);
  bool IsOwnAuthority(std::string_view text) const;
  bool StepBody(std::string_view rest, Verdict& verdict);

  network::Host host_;
  uint16_t port_;
  std::function<bool(std::string_view)> is_forbidden_;
  State state_ = State::kHead;
  uint64_t left_ = 0;   // remaining bytes of the body or chunk
  size_t scanned_ = 0;  // scanned bytes of the incomplete head or trailer
  bool first_ = true;
  bool is_get_ = false;
  bool old_version_ = false;
};

// Makes a complete answer that closes the connection.
std::string HttpRefusal(int status, std::string_view reason);

}  // namespace caisson::egress
