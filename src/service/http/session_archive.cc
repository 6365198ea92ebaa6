// Trees of sessions as tar files.
#include <utility>

#include "service/http/session_calls.h"

namespace caisson::service::http {

namespace {

using Piece = BodyStream::Piece;

class ArchiveStream : public BodyStream {
 public:
  explicit ArchiveStream(std::unique_ptr<SessionArchive> archive) : archive_(std::move(archive)) {}

  Piece Next() override {
    try {
      Result<std::string> bytes = archive_->Read();
      if (!bytes) return {"", Piece::Then::kEnd, true};
      const bool end = bytes->empty();
      return {*std::move(bytes), end ? Piece::Then::kEnd : Piece::Then::kMore, false};
    } catch (const std::exception&) {
      return {"", Piece::Then::kEnd, true};
    }
  }

 private:
  const std::unique_ptr<SessionArchive> archive_;
};

Result<std::string> ReadPath(const Call& call) { return PathInside(call.query.Text("path").value_or("/workspace")); }

}  // namespace

Answer SendSessionArchive(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    const Result<std::string> path = ReadPath(call);
    if (!path) return BadParameter(path.error());
    Result<std::unique_ptr<SessionArchive>> archive = sessions.OpenArchive(*call.caller, call.path[0], *path);
    if (!archive) return Problem(archive.error());
    Response head = Plain(200, "application/x-tar", "");
    Sandbox(head);
    return Streamed{std::move(head), std::nullopt, std::make_unique<ArchiveStream>(*std::move(archive))};
  });
}

Answer PutSessionArchive(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    const Result<std::string> path = ReadPath(call);
    if (!path) return BadParameter(path.error());
    if (call.request.content_length == 0) return Problem(422, "the archive is empty");
    return JsonOr(sessions.PutArchive(*call.caller, call.path[0], *path, call.request.body_file, call.request.body));
  });
}

}  // namespace caisson::service::http
