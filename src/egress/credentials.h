// Puts secrets into requests. A program inside knows a placeholder; where it stands in the one header of a request to
// the one host, port and path that the operator bound the secret to, egress puts the secret in its place. Anywhere else
// the placeholder refuses the request, because a program that sends it there was tricked, or tries something.
//
// The heads come from the sandbox and are hostile; HttpGate has judged them before (CRLF line ends, no folded lines,
// one Host that is the destination's). Bodies are not looked at. This file makes no system call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace caisson::egress {

struct BoundSecret {
  std::string name;  // of the credential, for the record
  std::string host;
  uint16_t port = 443;
  std::string path = "/";  // a prefix
  std::string header;      // in lower case
  std::string value;       // with "{secret}", where the header is added; empty: it never is
  std::string placeholder;
  std::vector<std::string> methods;  // empty: all
  std::vector<std::string> paths;    // empty: all
  bool git_read_only = false;
  std::string secret;
};

// The bytes of a secret as they are in its file: without the line end that editors and commands add. An error where
// they cannot stand in a header.
Result<std::string> CleanSecret(std::string_view bytes);

class Credentials {
 public:
  void Add(BoundSecret secret) { secrets_.push_back(std::move(secret)); }
  bool empty() const { return secrets_.empty(); }

  // Whether TLS for this destination is terminated.
  bool Binds(std::string_view host, uint16_t port) const;

  struct Edited {
    int status = 0;           // not 0: the request is refused with this answer
    const char* reason = "";  // for the record
    std::string head;         // to be sent
    std::string used;         // the name of the credential whose secret is in it; empty: none
  };
  // Judges and edits the head of a request to a host for which Binds is true.
  Edited Edit(std::string_view host, uint16_t port, std::string_view head) const;

  // Whether a head has a placeholder anywhere; for destinations that no secret is bound to.
  bool IsMentioned(std::string_view head) const;

 private:
  struct Request;
  const char* RefusalOf(const BoundSecret& secret, const Request& request) const;
  bool EditLine(std::string_view host, uint16_t port, const Request& request, std::string& line, Edited& edited) const;
  const BoundSecret* FindMentioned(std::string_view text) const;

  std::vector<BoundSecret> secrets_;
};

}  // namespace caisson::egress
