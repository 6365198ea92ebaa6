// What clients and supervisors of a session tell each other, and the documents that a session's directory keeps. A
// reader accepts it completely or refuses it, and what it accepts it writes down in a form that means the same.
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "fault.h"
#include "session/channel.h"
#include "session/command.h"
#include "session/open_request.h"
#include "session/session_record.h"
#include "target.h"

CAISSON_FUZZ_TARGET(session_protocol) {
  using namespace caisson;
  using namespace caisson::session;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  if (const auto record = ReadRecord(text); record) {
    const auto again = ReadRecord(ToJson(*record).dump());
    CAISSON_CHECK(again && ToJson(*again) == ToJson(*record));
  }
  if (const auto request = ReadOpenRequest(text); request) {
    const auto again = ReadOpenRequest(ToJson(*request).dump());
    CAISSON_CHECK(again && ToJson(*again) == ToJson(*request));
  }
  int ends[2];
  if (size > 65536 || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 0;
  Channel channel{UniqueFd(ends[0])};
  UniqueFd other(ends[1]);
  CAISSON_CHECK(::write(other.get(), bytes, size) == static_cast<ssize_t>(size));
  other.Reset();
  const auto open = channel.Receive();
  CAISSON_CHECK(open && !*open);
  while (true) {
    auto message = channel.Take();
    if (!message || !*message) break;
    CAISSON_CHECK((*message)->body.is_object());
    if (const auto command = ReadCommandRequest((*message)->body); command) {
      const auto again = ReadCommandRequest(ToJson(*command));
      CAISSON_CHECK(again && ToJson(*again) == ToJson(*command));
    }
  }
  return 0;
}
