// Reads one request after the other from the bytes of a connection: HeadCheck on the head, then Beast on it. Both must
// agree; a head that Beast reads differently is refused. The body has as many bytes as the head says; a large one is
// kept in a file.
//
//   kHead ─▶ kBegun ─AcceptBody─▶ kBody ─▶ kWhole ─Next─▶ kHead
//
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "service/http/message.h"
#include "service/http/request_head.h"

namespace caisson::service::http {

class RequestReader {
 public:
  enum class State : uint8_t {
    kHead,     // the head is not whole yet
    kBegun,    // the head is complete and valid: judge it, then call AcceptBody
    kBody,     // the body is not whole yet
    kWhole,    // the request is complete
    kRefused,  // fault(): answer it and close; nothing after it may be read
  };

  // `spool` is the directory of large bodies; empty: they are kept in memory.
  explicit RequestReader(size_t max_head_bytes, std::string spool = "");
  ~RequestReader();
  RequestReader(RequestReader&&) noexcept;

  State Take(std::string_view bytes);
  State AcceptBody();
  // Begins the next request with the bytes that followed the last one.
  State Next();

  State state() const { return state_; }
  bool started() const { return state_ != State::kHead || !buffer_.empty(); }
  const HeadFault& fault() const { return fault_; }
  // From kBegun on; the caller fills `id` and `peer`; the body is available from kWhole on.
  Request& request() { return request_; }
  bool keep_alive() const { return keep_alive_; }
  bool expects_continue() const { return expects_continue_; }

 private:
  State Refuse(int status, std::string reason);
  State ReadHead();
  State ReadBody();

  size_t max_head_bytes_;
  std::string spool_;
  std::string buffer_;  // received, not yet parsed
  HeadCheck check_;
  Request request_;
  int64_t body_left_ = 0;
  UniqueFd body_file_;
  bool keep_alive_ = false, expects_continue_ = false;
  HeadFault fault_;
  State state_ = State::kHead;
};

}  // namespace caisson::service::http
