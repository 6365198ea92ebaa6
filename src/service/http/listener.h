// Listening sockets, created with plain system calls. The server waits until they are readable.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::service::http {

// A unix socket in the file system; the destructor removes it.
//
// It appears under its name with its final mode and already listening: it is created inside a private directory and
// moved. (The umask would also work, but all threads share it.) A lock on the file "<path>.lock" is held while we
// listen, so that the second of two servers is refused; the socket of a dead server is replaced.
class UnixListener {
 public:
  static Result<UnixListener> Listen(const std::string& path, mode_t mode);
  UnixListener() = default;
  UnixListener(UnixListener&& other) noexcept { *this = std::move(other); }
  UnixListener& operator=(UnixListener&& other) noexcept;
  ~UnixListener() { Remove(); }

  UniqueFd TakeSocket() { return std::move(socket_); }
  // Removes the name, so that another server can use it. The code that accepts connections closes the socket.
  void Remove();

 private:
  std::string path_;
  UniqueFd socket_, lock_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

struct TcpListener {
  UniqueFd socket;
  int port = 0;
  bool loopback = false;  // only this machine can reach it
};

// `address` is "127.0.0.1:8123", "[::1]:8123" or "localhost:8123"; port 0 lets the kernel choose. An IPv6 address takes
// no IPv4 connections.
Result<TcpListener> ListenTcp(const std::string& address);

}  // namespace caisson::service::http
