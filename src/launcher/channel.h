// Frames over a seqpacket connection: a kind, bytes, and descriptors beside them. A body that is too long for a packet
// is sent in a sealed memfd, which travels as the frame's first descriptor: its contents cannot change, and its size
// cannot shrink, while the receiver reads it.
//
// Runs: both ends. A function blocks only if its comment says so.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "base/unique_fd.h"
#include "launcher/messages.h"
#include "launcher/wire.h"

namespace caisson::launcher {

// The most bytes that all fields of one frame may have. A client's whole workspace fits.
inline constexpr size_t kMaxBodyBytes = (size_t{1} << 30) + (size_t{64} << 20);

// A read-only mapping of a file that cannot change.
class Mapping {
 public:
  Mapping() = default;
  static Result<Mapping> Map(int sealed_fd, size_t size);
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Mapping();
  std::string_view bytes() const { return {static_cast<const char*>(address_), size_}; }

 private:
  void* address_ = nullptr;
  size_t size_ = 0;
};

struct Frame {
  Kind kind = Kind::kError;
  std::string packet;  // one of these two holds the body
  Mapping spilled;
  std::vector<UniqueFd> fds;

  std::string_view body() const { return packet.empty() ? spilled.bytes() : packet; }
};

// Without `wait`, fails with `errno_value` EAGAIN when the connection is full. With `wait`, blocks until there is room.
Status Send(int connection, Kind kind, const Encoded& body, bool wait);

// Blocks until a frame arrives. Skips kSignal frames, which arrived after their command had ended. Fails with
// ErrorKind::kSystem if the peer has closed the connection and with ErrorKind::kInvalid if the frame is malformed.
Result<Frame> Receive(int connection);

// Client: sends kSignal for the running command. A signal does not block and is lost if the connection is full; a
// request to stop blocks until it is sent.
void SendSignal(int connection, const StopRequest& request);
// Supervisor: returns what the client asks for while a command runs. Does not block; absent when nothing has arrived.
// Any frame that is not kSignal, and the end of the connection, count as a request to stop.
std::optional<StopRequest> TakeSignal(int connection);

// A client's request to a launcher: either a run, whose supervisor uses `run` as its connection to the client, or only
// the launcher's status, which is sent over `run`.
struct RunRequest {
  UniqueFd run;
  bool is_status = false;
  sandbox::Start warmest = sandbox::Start::kCold;  // the warmest start that may serve the run
  struct ucred sender {};                          // credentials as the kernel vouches for them
};
Status SendRunRequest(int control, int run_end, sandbox::Start warmest);
Status SendStatusRequest(int control, int answer_end);
// Does not block. Refuses a descriptor that is not a seqpacket connection.
Result<RunRequest> ReceiveRunRequest(int control);

// Between processes of one launcher: passes a run request to the process that will serve it. Only TakePassedOn blocks.
Status PassOn(int control_socket, const RunRequest& run_request);
Result<RunRequest> TakePassedOn(int control_socket);
// Between launcher and zygote: passes the end of a control socket by which the launcher will hold a new process. Taking
// blocks; an error means that the launcher has closed its end.
Status PassControlSocket(int zygote, int control_socket);
Result<UniqueFd> TakeControlSocket(int launcher);

}  // namespace caisson::launcher
