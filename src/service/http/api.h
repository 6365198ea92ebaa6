// The HTTP API of the service: routes, authentication and the documents that go in and out. What it offers to the world
// is described in schemas/openapi.yaml, which it serves itself.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "service/http/auth.h"
#include "service/http/message.h"
#include "service/http/server.h"
#include "service/service.h"

namespace caisson::service::http {

class Api : public Handler {
 public:
  static Result<std::shared_ptr<Api>> Make(const ServerConfig& config, Service& service);

  // Who asks, from where, for what: everything that can be judged before the body is read, so that a stranger cannot
  // make us read one.
  std::variant<int64_t, Response> Begin(Request& head) override;
  Answer Handle(const Request& request, const Wake& wake) override;
  Response Refuse(int status, const std::string& detail, int retry_after_s) override;

 private:
  Api(const ServerConfig& config, Service& service, std::unique_ptr<Authenticator> authenticator);

  const ServerBounds bounds_;
  const std::vector<std::string> allowed_hosts_;
  Service& service_;
  const std::unique_ptr<Authenticator> authenticator_;
};

}  // namespace caisson::service::http
