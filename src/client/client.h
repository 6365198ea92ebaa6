// HTTP client of the service. Opens one connection for each request, because commands make few.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "client/endpoint.h"
#include "client/reply_reader.h"

namespace caisson::client {

struct Ask {
  std::string method = "GET";
  std::string target;  // "/v1/jobs?limit=10", already encoded
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> fields;
  int64_t connect_ms = 10'000;
  int64_t timeout_ms = 90'000;  // without receiving anything; more than the longest ?wait
};

struct Reply {
  int status = 0;
  std::string location;
  int64_t retry_after_s = 0;
  std::string body;
};

class Client {
 public:
  explicit Client(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}
  const Endpoint& endpoint() const { return endpoint_; }

  // The answer, whatever its status; an error means that there was no answer.
  Result<Reply> Send(const Ask& ask) const;

  // The document of a good answer (2xx), or the answer's problem as an error: kNotFound for 404, kDenied for 401 and
  // 403, kConflict for 409, kExhausted for 429 and 503, kInvalid for other 4xx.
  Result<nlohmann::json> Json(const Ask& ask) const;
  Result<std::string> Text(const Ask& ask) const;
  // Hands the body to `sink` in pieces as they arrive; an error of `sink` stops it.
  Status Stream(const Ask& ask, const ReplyReader::Sink& sink) const;

 private:
  Result<ReplyReader> Exchange(const Ask& ask,
                               const std::function<Status(const ReplyReader&, std::string_view)>& sink) const;

  Endpoint endpoint_;
};

// The error that a reply with a failure status stands for.
Error ProblemOf(const Reply& reply);

}  // namespace caisson::client
