// The head of a request to a host with a secret: the secret is put in only where the placeholder stands in its header,
// and the edited head has the same lines.
#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"
#include "egress/credentials.h"
#include "egress/http_gate.h"
#include "target.h"

CAISSON_FUZZ_TARGET(request_edit) {
  using namespace caisson::egress;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  BoundSecret bound;
  bound.name = "one";
  bound.host = "api.example";
  bound.path = "/v1/";
  bound.header = "authorization";
  bound.placeholder = "PLACEHOLDER";
  bound.git_read_only = true;
  bound.secret = "\x01SECRET";
  Credentials credentials;
  credentials.Add(bound);
  // As in a connection: the gate judges first.
  HttpGate gate(*caisson::network::Host::Parse("api.example"), 443);
  bool is_head = false;
  const HttpGate::Verdict verdict = gate.JudgePart(text, is_head);
  if (verdict.status != 0 || !is_head) return 0;
  const std::string_view head = text.substr(0, verdict.forward);
  const Credentials::Edited edited = credentials.Edit("api.example", 443, head);
  if (edited.status != 0) {
    CAISSON_CHECK(edited.head.empty() && edited.used.empty());
    return 0;
  }
  CAISSON_CHECK(std::count(head.begin(), head.end(), '\n') == std::count(edited.head.begin(), edited.head.end(), '\n'));
  CAISSON_CHECK(edited.head.find("PLACEHOLDER") == std::string::npos);
  const bool has_secret = edited.head.find(bound.secret) != std::string::npos;
  if (has_secret) {
    CAISSON_CHECK(edited.used == "one");
    CAISSON_CHECK(edited.head.substr(edited.head.find(' ') + 1, 4) == "/v1/" ||
                  edited.head.find('%') != std::string::npos);
  }
  // Another host gets nothing.
  CAISSON_CHECK(credentials.Edit("other.example", 443, head).status != 0 || !credentials.IsMentioned(head));
  return 0;
}
