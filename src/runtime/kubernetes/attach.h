// The streams of a container, attached through the API server by a WebSocket, as a pair of sockets: what the runtime
// writes goes to the container's standard input, and the container's standard output comes back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::runtime::kubernetes {

class Dialer;

// The messages of v4.channel.k8s.io and v5.channel.k8s.io: the first byte is the channel.
enum class AttachChannel : uint8_t { kInput = 0, kOutput = 1, kError = 2, kStatus = 3, kResize = 4, kClose = 255 };
struct AttachMessage {
  AttachChannel channel = AttachChannel::kError;
  std::string_view bytes;
};
// Nothing for a message that no server of this protocol sends.
std::optional<AttachMessage> ReadAttachMessage(std::string_view message);

// Thread: a thread of its own moves the bytes; the methods are for the owner's.
class AttachedStream {
 public:
  // `path` is that of the pod's attach. The two descriptors are sockets; they end when the stream ends.
  static Result<std::unique_ptr<AttachedStream>> Open(const std::shared_ptr<Dialer>& dialer, const std::string& path,
                                                      UniqueFd from_runtime, UniqueFd to_runtime);
  virtual ~AttachedStream() = default;  // disconnects at once

  // Waits until the container has closed its end, after the runtime has closed its own.
  virtual bool AwaitEnd(int64_t within_ms) = 0;
};

}  // namespace caisson::runtime::kubernetes
