#include "session/transcript_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/utf8.h"

namespace caisson::session {
namespace {

using Finding = TranscriptVerification::Finding;

// The fault that a check line shows in the lines above it.
std::optional<Finding> FaultAbove(const TranscriptNote& check, const TranscriptTally& tally, int64_t check_line) {
  const std::vector<std::string>& found = tally.unchecked();
  const size_t listed = check.line_hashes.size() / 8;
  const int64_t first = check_line - static_cast<int64_t>(found.size());
  for (size_t i = 0; i < std::min(listed, found.size()); ++i) {
    if (check.line_hashes.compare(i * 8, 8, found[i]) != 0) {
      return Finding{first + static_cast<int64_t>(i), "was changed, or a line before it was added or removed"};
    }
  }
  if (listed > found.size()) {
    return Finding{check_line, std::to_string(listed - found.size()) + " lines before it are missing"};
  }
  if (listed < found.size()) {
    return Finding{first + static_cast<int64_t>(listed), "was added after the transcript was written"};
  }
  if (check.sha256 != tally.digest().sha256) {
    return Finding{check_line, "does not match the lines above it: it was changed, or belongs elsewhere"};
  }
  return std::nullopt;
}

}  // namespace

Result<TranscriptLines> TranscriptLines::Open(int directory_fd, const std::string& name) {
  TranscriptLines lines;
  const int fd = ::openat(directory_fd, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return Error::System(errno, "open " + name);
  lines.fd_ = UniqueFd(fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Error::System(errno, "stat " + name);
  if (!S_ISREG(info.st_mode)) return Error::Invalid(name + ": not a regular file");
  return lines;
}

Result<std::optional<std::string>> TranscriptLines::Next() {
  for (;;) {
    const size_t end = buffer_.find('\n', std::max(begin_, searched_));
    if (end != std::string::npos) {
      std::string line = buffer_.substr(begin_, end - begin_);
      begin_ = searched_ = end + 1;
      ++number_;
      if (line.size() > kMaxTranscriptLine) return Error::Invalid("takes more than 768 KiB");
      return std::optional(std::move(line));
    }
    buffer_.erase(0, begin_);
    begin_ = 0;
    searched_ = buffer_.size();
    if (buffer_.size() > kMaxTranscriptLine) {
      ++number_;
      return Error::Invalid("takes more than 768 KiB");
    }
    char piece[size_t{64} << 10];
    const ssize_t count = ::pread(fd_.get(), piece, sizeof(piece), read_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error::System(errno, "read the transcript");
    if (count == 0) return std::optional<std::string>();
    read_ += count;
    buffer_.append(piece, static_cast<size_t>(count));
  }
}

Result<TranscriptReader> TranscriptReader::Open(int directory_fd, const std::string& name) {
  CAISSON_TRY(TranscriptLines lines, TranscriptLines::Open(directory_fd, name));
  TranscriptReader reader(std::move(lines));
  Result<std::optional<std::string>> first = reader.lines_.Next();
  if (!first) return std::move(first).error().In("line 1");
  if (!*first) return Error::Invalid("line 1: the transcript has no header");
  Result<TranscriptHeader> header = ParseTranscriptHeader(**first);
  if (!header) return std::move(header).error().In("line 1");
  reader.header_ = *std::move(header);
  return reader;
}

Result<TranscriptEvent> TranscriptReader::Complete(TranscriptEvent event) {
  constexpr int64_t kMaxTime = int64_t{1} << 52;
  event.line = lines_.number();
  event.time_us = std::min(time_us_ + event.time_us, kMaxTime);
  event.command = command_;
  time_us_ = event.time_us;
  if (raw_) {
    // A player that ignores our notes must show the same text as we do.
    if (ReplaceInvalidUtf8(*raw_) != event.bytes) return Error::Invalid("is not what the note above it says");
    event.bytes = *std::move(raw_);
    raw_.reset();
  }
  return event;
}

Result<std::optional<TranscriptEvent>> TranscriptReader::Next() {
  for (;;) {
    Result<std::optional<std::string>> line = lines_.Next();
    const auto in_line = [&](Error error) { return std::move(error).In("line " + std::to_string(lines_.number())); };
    if (!line) return in_line(std::move(line).error());
    if (!*line) return std::optional<TranscriptEvent>();
    Result<TranscriptLine> parsed = ParseTranscriptLine(**line);
    if (!parsed) return in_line(std::move(parsed).error());
    if (parsed->kind == TranscriptLine::Kind::kNote) {
      if (parsed->note.command) command_ = *parsed->note.command;
      if (parsed->note.raw) raw_ = std::move(parsed->note.raw);
    }
    if (parsed->kind != TranscriptLine::Kind::kEvent) continue;
    Result<TranscriptEvent> event = Complete(std::move(parsed->event));
    if (!event) return in_line(std::move(event).error());
    return std::optional(*std::move(event));
  }
}

Result<TranscriptVerification> VerifyTranscript(int directory_fd, const std::string& name,
                                                const std::vector<TranscriptDigest>& checkpoints, bool complete) {
  CAISSON_TRY(TranscriptLines lines, TranscriptLines::Open(directory_fd, name));
  TranscriptVerification verification;
  TranscriptTally tally;
  size_t next = 0;              // checkpoint
  int64_t confirmed_lines = 0;  // up to the last checkpoint
  // A range of lines of which one was changed. The check line below it may know which.
  std::optional<Finding> vague;
  const auto found = [&](Finding finding) {
    verification.found = tally.digest();
    verification.finding = std::move(finding);
    return verification;
  };
  for (;;) {
    Result<std::optional<std::string>> line = lines.Next();
    if (!line && line.error().kind != ErrorKind::kInvalid) return std::move(line).error();
    if (!line) return found({lines.number(), line.error().message});
    if (!*line) break;
    const int64_t number = lines.number();
    if (!vague && complete && !checkpoints.empty() && number > checkpoints.back().lines) {
      vague = Finding{number, "was added after the session had ended"};
    }
    TranscriptNote note;
    if (number == 1) {
      if (const auto header = ParseTranscriptHeader(**line); !header) return found({1, header.error().message});
    } else {
      Result<TranscriptLine> parsed = ParseTranscriptLine(**line);
      if (!parsed) return found({number, parsed.error().message});
      note = std::move(parsed->note);
    }
    if (note.sha256.empty()) {
      tally.Add(**line);
    } else {
      if (std::optional<Finding> fault = FaultAbove(note, tally, number)) return found(*std::move(fault));
      if (vague) return found(*std::move(vague));
      tally.AddCheckLine(**line);
    }
    for (; !vague && next < checkpoints.size() && checkpoints[next].lines == number; ++next) {
      const TranscriptDigest& expected = checkpoints[next];
      if (expected.sha256 == tally.digest().sha256 && expected.bytes == tally.bytes()) {
        confirmed_lines = number;
        continue;
      }
      vague = Finding{confirmed_lines + 1, "the lines from here to line " + std::to_string(number) +
                                               " are not those that the session's events recorded"};
    }
  }
  if (vague) return found(*std::move(vague));
  verification.found = tally.digest();
  if (next < checkpoints.size()) {
    const int64_t due = checkpoints.back().lines;
    return found({tally.lines() + 1, "the transcript ends here, and " + std::to_string(due - tally.lines()) +
                                         " more lines were recorded: its end was cut off"});
  }
  if (complete && lines.ends_torn()) {
    return found({tally.lines() + 1, "was added after the session had ended, and has no end"});
  }
  return verification;
}

}  // namespace caisson::session
