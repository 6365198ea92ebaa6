// A connection whose TLS ends here: egress reads the requests of the program inside, puts secrets in, and sends them to
// the real server over TLS of its own. Answers and bodies pass unchanged. HTTP/1.1 only.
//
// Unlike other connections this one owns buffers: at most kMostBuffered bytes in each direction and one head.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "egress/credentials.h"
#include "egress/http_gate.h"
#include "egress/tls.h"

namespace caisson::egress {

class Terminated {
 public:
  // The sockets do not block and stay open as long as this object; neither has been read from.
  Terminated(const Tls& tls, const Credentials& credentials, const network::Host& host, uint16_t port, int client,
             int server);

  // What one turn did, and what is next.
  struct Step {
    size_t bytes_in = 0, bytes_out = 0;  // decrypted: to and from the sandbox
    bool over = false;
    bool clean = true;  // when over: nothing was cut off
    bool has_more = false;
    bool waits_for_head = false;    // the client owes the rest of a handshake or of a head
    const char* refusal = nullptr;  // a request was refused in this turn, for this reason
    bool refusal_is_ours = false;   // policy allowed it, but the server could not be trusted or reached
    std::string used;               // the credential that was put in for the first time in this connection
  };
  // Moves at most about `room` bytes.
  Step Pump(size_t room);
  // The client took too long.
  void Expire();

 private:
  enum Side : int { kClient = 0, kServer = 1 };
  struct End {
    TlsStream stream;
    int socket = -1;
    bool ready = false;   // the handshake is done
    bool ended = false;   // nothing more comes from this side
    bool cut = false;     // it ended without saying so
    bool closed = false;  // this side was told that nothing more comes
    std::string waiting;  // to be sent to this side
  };

  void ShakeHands(Step& step);
  bool ReadFrom(Side side, size_t& room, Step& step);
  void TakeRequests(Step& step);
  void TakeAnswers();
  bool SendTo(Side side, Step& step);
  void Refuse(int status, const char* reason, bool is_ours, Step& step);
  void PassEndsOn();

  const Credentials& credentials_;
  const std::string host_;
  const uint16_t port_;
  HttpGate gate_;
  End ends_[2];
  std::string unjudged_;    // from the client
  std::string unseen_;      // from the server, while its first answer to an upgrade is incomplete
  bool forwarded_ = false;  // something was sent to the server
  bool failed_ = false;
  bool expired_ = false;
  std::string refusal_;  // the answer to a refused request; sent when the server's answers before it are complete
  std::string used_;
};

}  // namespace caisson::egress
