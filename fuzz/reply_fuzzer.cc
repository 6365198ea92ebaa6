// A service may answer with any bytes. The client's reading does not depend on how the bytes are split.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "client/event_stream.h"
#include "client/reply_reader.h"
#include "target.h"

namespace {

struct Outcome {
  int kind = 0;  // 0 more, 1 whole, 2 refused
  std::string body;
};

Outcome Read(std::string_view input, size_t step) {
  Outcome outcome;
  caisson::client::ReplyReader reader;
  for (size_t at = 0; at < input.size() && outcome.kind != 2; at += step) {
    const auto taken = reader.Take(input.substr(at, step), [&](std::string_view piece) -> caisson::Status {
      outcome.body.append(piece);
      return {};
    });
    outcome.kind = !taken ? 2 : *taken ? 1 : 0;
  }
  return outcome;
}

}  // namespace

CAISSON_FUZZ_TARGET(reply) {
  const std::string_view input(reinterpret_cast<const char*>(bytes), size);
  const Outcome whole = Read(input, size == 0 ? 1 : size);
  const Outcome pieces = Read(input, 1);
  CAISSON_CHECK(whole.kind == pieces.kind);
  if (whole.kind == 1) CAISSON_CHECK(whole.body == pieces.body);
  caisson::client::EventParser parser;
  const caisson::Status parsed = parser.Take(input, [](int64_t seq, const std::string& data) -> caisson::Status {
    CAISSON_CHECK(seq >= 0 && !data.empty());
    return {};
  });
  CAISSON_CHECK(parsed.has_value());
  return 0;
}
