// Errors as RFC 9457 spells them: application/problem+json with type, title, status, detail and, where one value of the
// request is at fault, its path in `field`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "service/http/message.h"

namespace caisson::service::http {

// Headers that every answer has.
Response Plain(int status, const char* content_type, std::string body);
Response Json(int status, const nlohmann::json& document);
// For documents that are already JSON text.
Response JsonText(int status, std::string text);

Response Problem(int status, const std::string& detail, const std::string& field = "", int retry_after_s = 0);
nlohmann::json ProblemDocument(int status, const std::string& detail, const std::string& field = "");

// The status an Error stands for, and its field: kInvalid is 422, because unparsable bodies are detected before.
// Internal causes go to the log, not to the caller.
int StatusOf(const Error& error);
Response Problem(const Error& error);
nlohmann::json ProblemDocument(const Error& error);

// Valid UTF-8 whatever the strings hold.
std::string ToText(const nlohmann::json& document);

}  // namespace caisson::service::http
