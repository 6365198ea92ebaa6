// The HTTP API of the service: routes, authentication and the documents that go in and out. schemas/openapi.yaml
// describes it, and the service serves that file.
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

  // Checks caller, origin and route: everything that can be judged before the body is read, so that an unauthorised
  // peer cannot make the server read a body.
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
