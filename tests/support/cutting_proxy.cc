#include "support/cutting_proxy.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <string_view>
#include <utility>

namespace caisson::testing {
namespace {

constexpr char kSocketName[] = "/.s.PGSQL.5432";

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

}  // namespace

CuttingProxy::CuttingProxy(const std::string& server_directory, const std::string& own_directory)
    : server_path_(server_directory + kSocketName), listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_un address = AddressOf(own_directory + kSocketName);
  EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(listener_.get(), 64), 0);
  acceptor_ = std::thread(&CuttingProxy::Accept, this);
}

CuttingProxy::~CuttingProxy() {
  ::shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  for (std::thread& connection : connections_) connection.join();
}

void CuttingProxy::Accept() {
  for (;;) {
    UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client) return;
    const std::lock_guard<std::mutex> guard(mutex_);
    connections_.emplace_back(&CuttingProxy::Forward, this, std::move(client));
  }
}

void CuttingProxy::Forward(UniqueFd client) {
  const UniqueFd server(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = AddressOf(server_path_);
  if (::connect(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return;
  for (;;) {
    pollfd ready[2] = {{client.get(), POLLIN, 0}, {server.get(), POLLIN, 0}};
    if (::poll(ready, 2, -1) < 0) return;
    if (ready[0].revents != 0 && !Pass(client.get(), server.get(), true)) return;
    if (ready[1].revents != 0 && !Pass(server.get(), client.get(), false)) return;
  }
}

bool CuttingProxy::Pass(int from, int to, bool from_client) {
  char buffer[65536];
  const ssize_t got = ::recv(from, buffer, sizeof buffer, 0);
  if (got <= 0 || ::send(to, buffer, static_cast<size_t>(got), MSG_NOSIGNAL) != got) return false;
  const std::string_view said(buffer, static_cast<size_t>(got));
  if (!from_client || said.find(std::string_view("COMMIT\0", 7)) == std::string_view::npos) return true;
  const int number = ++commits_;
  if (number % 5 != 0) return true;
  ++cuts_;
  // Every other time the server has finished the COMMIT when the client notices the loss; otherwise the COMMIT is still
  // running.
  if (number % 2 == 0) (void)::recv(to, buffer, sizeof buffer, 0);
  return false;
}

}  // namespace caisson::testing
