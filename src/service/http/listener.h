// The sockets that connections come to. Made with plain system calls; whoever serves them waits for them to be
// readable.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::service::http {

// A unix socket in the file system, removed when it goes.
//
// It appears under its name with its final mode and already listening: it is made inside a directory that only we can
// enter, and moved. (The umask, which would do as well, is every thread's.) A file "<path>.lock" is held while we
// listen, so that of two servers one is refused; the socket of a server that died is replaced.
class UnixListener {
 public:
  static Result<UnixListener> Listen(const std::string& path, mode_t mode);
  UnixListener() = default;
  UnixListener(UnixListener&& other) noexcept { *this = std::move(other); }
  UnixListener& operator=(UnixListener&& other) noexcept;
  ~UnixListener() { Remove(); }

  UniqueFd TakeSocket() { return std::move(socket_); }
  // Takes the name away and lets another server have it. The socket is closed by whoever took it.
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
