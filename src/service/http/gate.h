// Keeps web pages out. A page can make a browser send requests to a port of this machine, but it cannot choose these
// fields:
//
//   Host            a page that reaches us through its own name (DNS rebinding) is detected by that name: 421
//   Origin,         name the site that a request comes from; only our own is accepted: 403. No CORS header is ever
//   sent, so Sec-Fetch-Site  that a page cannot read an answer either. Content-Type    a form cannot send
//   application/json (the routes ask for it)
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "service/http/auth.h"
#include "service/http/message.h"

namespace caisson::service::http {

// Whether a Host field, with or without a port, names localhost, 127.0.0.1, [::1] or one of `allowed`, exactly.
bool IsAllowedHost(std::string_view host, const std::vector<std::string>& allowed);

std::optional<Refusal> JudgeOrigin(const Request& request, const std::vector<std::string>& allowed_hosts);

}  // namespace caisson::service::http
