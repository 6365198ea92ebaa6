#include "runtime/witnessed/conversation.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.h"

namespace caisson::runtime::witnessed {

using agent::Frame;
using agent::Kind;

Status Conversation::Send(Kind kind, const Result<std::string>& body) {
  if (!body) return body.error();
  pending_ += agent::Pack(kind, *body);
  return Flush();
}

Status Conversation::Flush() {
  while (sent_ < pending_.size() && !over_) {
    CAISSON_TRY(const size_t size, container_->Write(std::string_view(pending_).substr(sent_)));
    if (size == 0) return {};
    sent_ += size;
  }
  pending_.clear();
  sent_ = 0;
  return {};
}

Status Conversation::Fill() {
  if (over_) return {};
  CAISSON_TRY(const bool more, container_->Read(frames_));
  over_ = !more;
  return {};
}

Result<std::optional<Frame>> Conversation::Next() {
  CAISSON_TRY(std::optional<Frame> frame, frames_.Next());
  if (frame && frame->kind == Kind::kError) return agent::DecodeError(frame->body);
  return frame;
}

Result<Frame> Conversation::Await(Kind kind, int64_t within_ms) {
  const int64_t until = MonotonicNanos() / 1'000'000 + within_ms;
  for (;;) {
    CAISSON_TRY(std::optional<Frame> frame, Next());
    if (frame && frame->kind != kind) return Error::Invalid("the agent sent an answer to something else");
    if (frame) return *std::move(frame);
    if (over_) return Error::System(ECONNRESET, "the agent inside the container ended without an answer");
    const int64_t left = until - MonotonicNanos() / 1'000'000;
    if (left <= 0) return Error::System(ETIMEDOUT, "the agent inside the container does not answer");
    struct pollfd waits[] = {{container_->input(), POLLIN, 0}, {has_pending() ? container_->output() : -1, POLLOUT, 0}};
    if (::poll(waits, 2, static_cast<int>(std::min<int64_t>(left, 1000))) < 0 && errno != EINTR)
      return Error::System(errno, "wait for the agent");
    if (waits[1].revents != 0) CAISSON_TRY_VOID(Flush());
    if (waits[0].revents != 0) CAISSON_TRY_VOID(Fill());
  }
}

}  // namespace caisson::runtime::witnessed
