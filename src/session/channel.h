// Messages over a connected stream socket: JSON objects with descriptors beside them. Both ends of a session's control
// socket use it: the supervisor never waits, a client may (session/client.h).
//
// A frame is an eight-byte head (bytes of the body, number of descriptors; both in host order, because both ends are on
// one machine) and the body. Descriptors travel with the first byte of the head.
#pragma once

#include <cstddef>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::session {

struct Message {
  nlohmann::json body;  // an object
  std::vector<UniqueFd> fds;
};

// A command line of one mebibyte, every byte of it escaped, still fits.
inline constexpr size_t kMaxMessageBytes = size_t{8} << 20;
inline constexpr size_t kMaxMessageFds = 4;

class Channel {
 public:
  // Makes the socket non-blocking.
  explicit Channel(UniqueFd socket);

  int fd() const { return socket_.get(); }

  // Sends, or queues what the socket does not take now. An error: the connection is of no use any more.
  Status Send(const nlohmann::json& body, std::vector<UniqueFd> fds = {});
  Status Flush();
  bool has_queued() const { return !queue_.empty(); }

  // Reads what there is. False: the other end has closed the connection.
  Result<bool> Receive();
  // The next complete message, if there is one.
  Result<std::optional<Message>> Take();

 private:
  struct Outgoing {
    std::string bytes;
    size_t sent = 0;
    std::vector<UniqueFd> fds;
  };

  UniqueFd socket_;
  std::deque<Outgoing> queue_;
  size_t queued_bytes_ = 0;
  std::string received_;
  std::deque<UniqueFd> received_fds_;
};

}  // namespace caisson::session
