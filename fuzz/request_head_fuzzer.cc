// Any bytes may come over a connection. Beast must accept every accepted request too; acceptance must not depend on how
// the bytes are split, and exactly the bytes after the request must remain.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "service/http/request_reader.h"
#include "target.h"

namespace {

using caisson::service::http::HeadCheck;
using caisson::service::http::RequestReader;
using State = RequestReader::State;

constexpr size_t kMaxHead = 16384;

void CheckRequest(RequestReader& reader) {
  const auto& request = reader.request();
  CAISSON_CHECK(!request.method.empty() && !request.target.empty() && request.target[0] == '/');
  CAISSON_CHECK(request.Field("host") && !request.Field("transfer-encoding"));
  for (size_t i = 0; i < request.fields.size(); ++i) {
    const auto& [name, value] = request.fields[i];
    CAISSON_CHECK(!name.empty() && name.find_first_of(" \t\r\n:") == std::string::npos);
    CAISSON_CHECK(value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
    for (size_t j = 0; j < i; ++j)
      CAISSON_CHECK(request.fields[j].first != name || !caisson::service::http::IsSingleField(name));
  }
}

}  // namespace

CAISSON_FUZZ_TARGET(request_head) {
  const std::string_view input(reinterpret_cast<const char*>(bytes), size);
  HeadCheck check(kMaxHead);
  const HeadCheck::State checked = check.Look(input);

  RequestReader whole(kMaxHead);
  const State state = whole.Take(input);
  // Beast may refuse more than the check does, never less.
  CAISSON_CHECK(checked != HeadCheck::State::kRefused || state == State::kRefused);
  CAISSON_CHECK(checked != HeadCheck::State::kMore || state == State::kHead);

  RequestReader pieces(kMaxHead);
  State piecewise = State::kHead;
  for (size_t i = 0; i < size && piecewise == State::kHead; ++i) piecewise = pieces.Take(input.substr(i, 1));
  CAISSON_CHECK(piecewise == state);
  if (state == State::kRefused) CAISSON_CHECK(whole.fault().status == pieces.fault().status);
  if (state != State::kBegun) return 0;
  CheckRequest(whole);
  const size_t length = static_cast<size_t>(whole.request().content_length);
  const State body = whole.AcceptBody();
  const size_t rest = size - check.size();
  CAISSON_CHECK(body == (rest < length ? State::kBody : State::kWhole));
  if (body == State::kWhole) CAISSON_CHECK(whole.request().body == input.substr(check.size(), length));
  return 0;
}
