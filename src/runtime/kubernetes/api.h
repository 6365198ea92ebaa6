// Requests to the Kubernetes API server: JSON over HTTPS. Six addresses are all that this runtime needs, so there is no
// general client; docs/operator/kubernetes.md has the Role that permits them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "runtime/kubernetes/settings.h"

namespace caisson::runtime::kubernetes {

class Dialer;

struct Reply {
  int status = 0;
  std::string body;
  std::vector<std::string> warnings;  // of the API server about the object that was sent
};

// Thread: any. Each request has a connection of its own.
class Api {
 public:
  static Result<std::unique_ptr<Api>> Make(Access access);

  const std::shared_ptr<Dialer>& dialer() const { return dialer_; }
  const std::string& name_space() const { return name_space_; }

  // A reply of any status is no error. `path` begins with a slash.
  Result<Reply> Send(const char* method, const std::string& path, const std::string& body = "") const;
  // The same; any status but 200, 201 and 202 is an error that names the cause and, for a missing right, the fix.
  Result<Reply> Request(const char* method, const std::string& path, const std::string& body = "") const;

  // Passes the body on as it arrives, until it ends, `take` fails or `stopped` says so, which is asked at least each
  // second. An error when the status is not 200.
  Status Stream(const std::string& path, const std::function<Status(std::string_view)>& take,
                const std::function<bool()>& stopped) const;

  std::string JobsPath() const { return "/apis/batch/v1/namespaces/" + name_space_ + "/jobs"; }
  std::string PodsPath() const { return "/api/v1/namespaces/" + name_space_ + "/pods"; }
  std::string EventsPath() const { return "/api/v1/namespaces/" + name_space_ + "/events"; }

 private:
  explicit Api(std::shared_ptr<Dialer> dialer, std::string name_space)
      : dialer_(std::move(dialer)), name_space_(std::move(name_space)) {}

  std::shared_ptr<Dialer> dialer_;
  std::string name_space_;
};

// The error that a reply stands for: the API server's own words, and what to do about them.
Error ErrorOf(const char* method, const std::string& path, const Reply& reply);

}  // namespace caisson::runtime::kubernetes
