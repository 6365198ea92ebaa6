// Is this the head of an HTTP/1.1 request, by the letter? Beast's parser decides what a request says; this decides
// first whether there is only one way to read it. Beast is as lax as the standard lets a server be, and what a server
// may be lax about is what a proxy before it may read differently: there requests are smuggled. So on top of Beast's
// grammar are refused, while the bytes arrive and before anything waits for more of them:
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

// Fields that say one thing each. To get any of them twice is to be told two things.
bool IsSingleField(std::string_view lower_case_name);

// One head, checked line by line as it arrives.
class HeadCheck {
 public:
  enum class State : uint8_t { kMore, kWhole, kRefused };

  explicit HeadCheck(size_t max_bytes) : max_bytes_(max_bytes) {}

  // `bytes` are all that came since the request began: what was passed before, and more.
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
  std::vector<std::string> single_;  // single fields that came
  HeadFault fault_;
};

}  // namespace caisson::service::http
