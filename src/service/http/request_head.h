// Checks that the head of an HTTP/1.1 request is unambiguous, before Beast parses it. Beast is as lenient as the
// standard permits, and a proxy in front may read lenient input differently: that is how requests are smuggled. So this
// reader refuses, in addition to Beast's grammar, while the bytes arrive and before it waits for more:
//
//   400  a line that ends in a bare LF, a bare CR, control characters, a folded or an empty first line, HTTP/0.9
//        white space before a colon, a target that is not a path, malformed escapes in it
//        a missing Host; Host, Content-Length or any other field that we read twice; Content-Length with
//        Transfer-Encoding; a Content-Length that is not plain digits
//   411  Transfer-Encoding: a body needs a Content-Length here. (RFC 9112, 6.3 lets a server ask for one. Without
//        chunks there are no chunk extensions, trailers or chunk sizes to disagree about.)
//   414  a first line above 8 KiB      431  a larger head than allowed, or more than 100 fields
//   417  an Expect other than 100-continue      505  another version than HTTP/1.1
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace caisson::service::http {

struct HeadFault {
  int status = 400;
  std::string reason;
};

// Fields with a single value. A second field of the same name would contradict the first, so it is refused.
bool IsSingleField(std::string_view lower_case_name);

// One head, checked line by line as it arrives.
class HeadCheck {
 public:
  enum class State : uint8_t { kMore, kWhole, kRefused };

  explicit HeadCheck(size_t max_bytes) : max_bytes_(max_bytes) {}

  // `bytes` are all bytes since the request began, including those of earlier calls.
  State Look(std::string_view bytes);

  size_t size() const { return checked_; }  // of the head, with the empty line at its end, once it is whole
  const HeadFault& fault() const { return fault_; }

 private:
  State Refuse(int status, const char* reason);
  State LookAtLine(std::string_view line);
  State LookAtRequestLine(std::string_view line);
  State LookAtField(std::string_view line);
  State LookAtValue(std::string_view name, std::string_view value);
  State LookAtWhole();

  size_t max_bytes_;
  size_t checked_ = 0;  // up to the end of the last whole line
  size_t scanned_ = 0;  // for the end of the next one
  size_t lines_ = 0;
  std::vector<std::string> single_;  // single-value fields seen so far
  HeadFault fault_;
};

}  // namespace caisson::service::http
