// Looks a name up over TCP, as a resolver does with RES_OPTIONS=use-vc or after a truncated answer; in one
// piece, byte by byte, two at once, and cut short. A name carries data out; it must be refused and be in the record.
//
// The control has a server of its own, in a network namespace of its own, that knows the name.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "escape/outside_peer.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

struct sockaddr_in Server() {
  struct sockaddr_in address {};
  address.sin_family = AF_INET;
  address.sin_port = htons(53);
  ::inet_pton(AF_INET, "127.0.0.53", &address.sin_addr);
  return address;
}

// One query for the address of secret.example, with its length in front.
std::string Query() {
  const std::string header("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", 12);
  const std::string question = std::string("\x06secret\x07") + "example" + std::string("\0\0\1\0\1", 5);
  const std::string packet = header + question;
  return std::string(1, '\0') + static_cast<char>(packet.size()) + packet;
}

// Answers every query as it stands, with "no error".
void* Serve(void* listener) {
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(listener));
  for (int peer; (peer = ::accept(fd, nullptr, nullptr)) >= 0; ::close(peer)) {
    char bytes[512];
    for (ssize_t size; (size = ::recv(peer, bytes, Query().size(), MSG_WAITALL)) >= 6;) {
      bytes[4] = static_cast<char>(0x81);
      bytes[5] = static_cast<char>(0x80);
      if (::send(peer, bytes, static_cast<size_t>(size), MSG_NOSIGNAL) < 0) break;
    }
  }
  return nullptr;
}

bool StartServer() {
  if (!IsControl()) return true;
  if (!MakeOutsidePeerReachable()) return false;
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const struct sockaddr_in address = Server();
  if (::bind(fd, reinterpret_cast<const struct sockaddr*>(&address), sizeof(address)) != 0 || ::listen(fd, 8) != 0)
    return false;
  pthread_t thread;
  return ::pthread_create(&thread, nullptr, Serve, reinterpret_cast<void*>(intptr_t{fd})) == 0;
}

Observation Ask(size_t piece) {
  if (!StartServer()) return NotApplicable("no server");
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const struct sockaddr_in address = Server();
  if (::connect(fd, reinterpret_cast<const struct sockaddr*>(&address), sizeof(address)) != 0) return Blocked(errno);
  const std::string query = Query();
  for (size_t at = 0; at < query.size(); at += piece) {
    if (::send(fd, query.data() + at, std::min(piece, query.size() - at), MSG_NOSIGNAL) < 0) return Blocked(errno);
  }
  char answer[512];
  const ssize_t size = ::recv(fd, answer, sizeof(answer), 0);
  if (size < 6) return Blocked(0, "no answer");
  return (answer[5] & 0x0f) == 0 ? Escaped("the name was found") : Blocked(0, "the name was refused");
}

Observation Whole() { return Ask(512); }
Observation ByteByByte() { return Ask(1); }

// The C library sends the questions for both families at once and waits for both answers.
Observation TwoAtOnce() {
  if (!StartServer()) return NotApplicable("no server");
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const struct sockaddr_in address = Server();
  if (::connect(fd, reinterpret_cast<const struct sockaddr*>(&address), sizeof(address)) != 0) return Blocked(errno);
  const std::string queries = Query() + Query();
  if (::send(fd, queries.data(), queries.size(), MSG_NOSIGNAL) < 0) return Blocked(errno);
  std::string answers(queries.size(), '\0');
  const struct timeval patience { 20, 0 };
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const ssize_t size = ::recv(fd, answers.data(), answers.size(), MSG_WAITALL);
  if (size < 0 || static_cast<size_t>(size) != answers.size()) return Escaped("the second question has no answer");
  const bool found = (answers[5] & 0x0f) == 0 || (answers[answers.size() / 2 + 5] & 0x0f) == 0;
  return found ? Escaped("the names were found") : Blocked(0, "the names were refused");
}

Observation CutShort() {
  if (!StartServer()) return NotApplicable("no server");
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const struct sockaddr_in address = Server();
  if (::connect(fd, reinterpret_cast<const struct sockaddr*>(&address), sizeof(address)) != 0) return Blocked(errno);
  const std::string query = Query();
  const bool sent = ::send(fd, query.data(), query.size() - 4, MSG_NOSIGNAL) > 0 && ::shutdown(fd, SHUT_WR) == 0;
  char answer[512];
  const ssize_t size = ::recv(fd, answer, sizeof(answer), 0);
  return IsControl() && sent ? Escaped("the bytes of the name were sent")
                             : Blocked(0, size > 0 ? "answered" : "closed");
}

const std::vector<Report> kReports = {{"NetworkAccessViolation", "net.dns"}};

const Registration kRow(Row{
    .id = "G15",
    .title = "names looked up over TCP",
    .severity = Severity::kExfiltration,
    .walls = {"network namespace", "name look-ups"},
    .attempts = {{.name = "whole",
                  .probe = Whole,
                  .control = {.place = Place::kOwnNamespaces},
                  .expect = {.reports = kReports}},
                 {.name = "byte-by-byte",
                  .probe = ByteByByte,
                  .control = {.place = Place::kOwnNamespaces},
                  .expect = {.reports = kReports}},
                 {.name = "two-at-once",
                  .probe = TwoAtOnce,
                  .control = {.place = Place::kOwnNamespaces},
                  .expect = {.reports = kReports}},
                 {.name = "cut-short",
                  .probe = CutShort,
                  .control = {.place = Place::kOwnNamespaces},
                  .expect = {.reports = kReports}}},
});

}  // namespace

}  // namespace caisson::escape
