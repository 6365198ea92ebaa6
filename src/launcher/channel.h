// Frames over a seqpacket connection: a kind, bytes, and descriptors beside them. What is too long for a packet goes in
// a sealed memfd that travels as the frame's first descriptor: its contents cannot change, and its size cannot shrink,
// while the receiver reads it.
//
// Runs: both ends. Nothing here blocks but what says so.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/messages.h"
#include "launcher/wire.h"

namespace caisson::launcher {

// The bytes of all of one frame's fields. A sender's whole workspace fits.
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

// `errno_value` is EAGAIN when the connection is full and `wait` is false. With `wait` it blocks until there is room.
Status Send(int connection, Kind kind, const Encoded& body, bool wait);

// Blocks until there is a frame; skips signal records that came too late for their command. A connection that the other
// side has closed is ErrorKind::kSystem; a frame that is none is ErrorKind::kInvalid.
Result<Frame> Receive(int connection);

// What a client asks a launcher for: a run, supervised at the other end of `run`, or only its status, told there.
struct Opening {
  UniqueFd run;
  bool is_status = false;
  sandbox::Start warmest = sandbox::Start::kCold;  // what the run may be served with
  struct ucred sender {};                          // as the kernel vouches for it
};
Status SendOpen(int control, int run_end, sandbox::Start warmest);
Status SendStatusRequest(int control, int answer_end);
// Does not block. What is no seqpacket connection is refused.
Result<Opening> ReceiveOpen(int control);

// Between processes of one launcher: gives an opening to the one that will serve it. Only taking waits.
Status PassOn(int leash, const Opening& opening);
Result<Opening> TakePassedOn(int leash);
// Between launcher and zygote: the end of a leash for a new process to be held by. Taking waits; its error is the end.
Status PassLeash(int zygote, int leash);
Result<UniqueFd> TakeLeash(int launcher);

}  // namespace caisson::launcher
