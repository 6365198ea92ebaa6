#include "cli/service_discovery.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cli/service_access.h"

namespace caisson::cli {

namespace {

constexpr int64_t kAnswerMs = 1'000;

Discovery Absent(std::string why, bool surprising) { return {std::nullopt, std::move(why), surprising}; }

bool IsOurs(const struct stat& info) { return info.st_uid == 0 || info.st_uid == ::geteuid(); }

Result<Discovery> TrySocket(const std::string& path) {
  struct stat socket {};
  struct stat directory {};
  if (::lstat(path.c_str(), &socket) != 0 || ::stat(path.substr(0, path.rfind('/')).c_str(), &directory) != 0)
    return Absent("", false);
  if (!S_ISSOCK(socket.st_mode)) return Absent(path + " is not a socket", true);
  if (!IsOurs(socket) || !IsOurs(directory))
    return Absent(path + " belongs to user " + std::to_string(IsOurs(socket) ? directory.st_uid : socket.st_uid) +
                      ", neither root nor you; if you trust that service, set CAISSON_URL=unix:" + path,
                  true);
  CAISSON_TRY(client::Endpoint endpoint, client::FindEndpoint("unix:" + path, ""));
  client::Client client(std::move(endpoint));
  client::Ask ask = Get("/readyz");
  ask.connect_ms = ask.timeout_ms = kAnswerMs;
  const Result<client::Reply> reply = client.Send(ask);
  if (!reply) {
    // A socket that a killed service left behind, or that this user may not open.
    const bool nobody = reply.error().errno_value == ECONNREFUSED || reply.error().errno_value == ENOENT;
    return Absent(reply.error().message, !nobody && reply.error().kind != ErrorKind::kDenied);
  }
  if (reply->status == 200) return Discovery{std::move(client), "", false};
  const std::string place = "the service at unix:" + path;
  if (reply->status == 503) return Absent(place + " accepts no jobs now (see: caisson doctor --service)", true);
  return Absent(place + ": " + client::ProblemOf(*reply).message, true);
}

}  // namespace

Result<Discovery> DiscoverService() {
  const std::string url = client::UrlVariable();
  if (url == client::kNoService) return Absent("CAISSON_URL says that there is no service", false);
  if (!url.empty()) {
    CAISSON_TRY(client::Endpoint endpoint, client::FindEndpoint("", ""));
    return Discovery{client::Client(std::move(endpoint)), "", false};
  }
  Discovery first;
  for (const std::string& socket : client::DefaultSockets()) {
    CAISSON_TRY(Discovery found, TrySocket(socket));
    if (found.service) return found;
    if (first.absence.empty()) first = std::move(found);
  }
  if (first.absence.empty())
    first.absence = "there is no service; start one with: caissond (or name its address: CAISSON_URL)";
  return first;
}

}  // namespace caisson::cli
