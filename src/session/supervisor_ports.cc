// The supervisor's forwards: servers inside that can be reached at 127.0.0.1 while a client wants it.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "linux/sockets.h"
#include "session/supervisor.h"
#include "verify/json_fields.h"

namespace caisson::session {

using nlohmann::json;

namespace {
constexpr size_t kMostForwards = 32;
}  // namespace

Supervisor::Reply Supervisor::Forward(uint64_t client, const json& message) {
  CAISSON_TRY(const int64_t inside, verify::ReadRequired(message, "", "inside_port", verify::ReadInteger, 1, 65535));
  CAISSON_TRY(int64_t port, verify::ReadRequired(message, "", "port", verify::ReadInteger, 0, 65535));
  size_t open = 0;
  for (const auto& [number, connection] : connections_) open += connection.forwards.size();
  if (open >= kMostForwards)
    return Error::Exhausted("a session forwards at most " + std::to_string(kMostForwards) + " ports");
  CAISSON_TRY(UniqueFd listener, linux_sys::ListenAtLoopback(static_cast<uint16_t>(port)));
  struct sockaddr_in place {};
  socklen_t size = sizeof(place);
  if (::getsockname(listener.get(), reinterpret_cast<struct sockaddr*>(&place), &size) != 0)
    return Error::System(errno, "find the port");
  port = ntohs(place.sin_port);  // 0 asked for any
  CAISSON_TRY_VOID(
      Note(SessionEventType::kPortForwarded, {{"port", port}, {"inside_port", inside}, {"state", "open"}}));
  CAISSON_TRY_VOID(run_->Forward(std::move(listener), static_cast<uint16_t>(port), static_cast<uint16_t>(inside)));
  connections_.at(client).forwards.insert(static_cast<uint16_t>(port));
  return json{{"address", "127.0.0.1"}, {"port", port}, {"inside_port", inside}};
}

void Supervisor::EndForwards(const std::set<uint16_t>& ports) {
  for (const uint16_t port : ports) {
    (void)run_->EndForward(port);
    (void)Note(SessionEventType::kPortForwarded, {{"port", port}, {"state", "closed"}});
  }
}

}  // namespace caisson::session
