#include "sandbox/trust_bundle.h"

#include <fcntl.h>

#include <cerrno>

#include "linux/files.h"

namespace caisson::sandbox {

namespace {

constexpr const char* kPlaces[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                   "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
constexpr size_t kMaxBytes = size_t{900} << 10;  // the root file system of a sandbox has room for it

}  // namespace

Result<std::string> ReadTrustBundle() {
  for (const char* place : kPlaces) {
    Result<std::string> text = linux_sys::ReadSmallFile(AT_FDCWD, place, kMaxBytes + 1);
    if (!text && (text.error().errno_value == ENOENT || text.error().errno_value == ENOTDIR)) continue;
    if (!text) return std::move(text).error().In("network");
    if (text->size() > kMaxBytes)
      return Error::Unsupported(std::string("network: ") + place + " is larger than a sandbox can show");
    if (!text->empty() && text->back() != '\n') *text += '\n';
    return text;
  }
  return std::string();
}

}  // namespace caisson::sandbox
