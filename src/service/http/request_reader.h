// Reads one request after the other from the bytes of a connection: HeadCheck on the head, then Beast on head and body.
// Both must agree; a head that Beast reads otherwise is refused.
//
//   kHead ─▶ kBegun ─Admit─▶ kBody ─▶ kWhole ─Next─▶ kHead
//
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "service/http/message.h"
#include "service/http/request_head.h"

namespace caisson::service::http {

class RequestReader {
 public:
  enum class State : uint8_t {
    kHead,     // the head is not whole yet
    kBegun,    // it is, and says nothing that is refused: judge it, then call Admit
    kBody,     // the body is not whole yet
    kWhole,    // take it
    kRefused,  // fault(): answer it and close; nothing behind it may be read
  };

  explicit RequestReader(size_t max_head_bytes);
  ~RequestReader();
  RequestReader(RequestReader&&) noexcept;

  State Take(std::string_view bytes);
  State Admit();
  // Begins the next request with what came behind the last one.
  State Next();

  State state() const { return state_; }
  bool started() const { return state_ != State::kHead || !buffer_.empty(); }
  const HeadFault& fault() const { return fault_; }
  // From kBegun on; `id` and `peer` are the caller's to fill, the body is there from kWhole on.
  Request& request() { return request_; }
  bool keep_alive() const { return keep_alive_; }
  bool expects_continue() const { return expects_continue_; }

 private:
  struct Parser;
  State Refuse(int status, std::string reason);
  State ReadHead();
  State ReadBody();

  size_t max_head_bytes_;
  std::string buffer_;  // received, not yet parsed
  HeadCheck check_;
  std::unique_ptr<Parser> parser_;
  Request request_;
  bool keep_alive_ = false, expects_continue_ = false;
  HeadFault fault_;
  State state_ = State::kHead;
};

}  // namespace caisson::service::http
