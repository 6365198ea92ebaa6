#include "session/transcript.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "linux/files.h"

namespace caisson::session {
namespace {

// Kept free for the event that says that the rest is missing, and a last check line.
constexpr int64_t kReserve = 4096;
constexpr size_t kMaxCommandText = 4096;

}  // namespace

Result<TranscriptWriter> TranscriptWriter::Open(int directory_fd, const std::string& name,
                                                const TranscriptHeader& header, const TranscriptOptions& options) {
  TranscriptWriter writer;
  writer.name_ = name;
  writer.options_ = options;
  const int fd =
      ::openat(directory_fd, name.c_str(), O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  if (fd < 0) return Error::System(errno, "open " + name);
  writer.fd_ = UniqueFd(fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Error::System(errno, "stat " + name);
  if (!S_ISREG(info.st_mode)) return Error::Invalid(name + ": not a regular file");
  CAISSON_TRY_VOID(writer.GoOn(info.st_size));
  if (writer.tally_.lines() == 0) CAISSON_TRY_VOID(writer.WriteLines(FormatTranscriptHeader(header)));
  return writer;
}

// Reads the transcript that is there, so that hashes and check lines go on.
Status TranscriptWriter::GoOn(int64_t size) {
  if (size > options_.max_bytes) return Error::Invalid(name_ + ": is larger than a transcript may be");
  std::string buffer;
  for (int64_t read = 0; read < size;) {
    constexpr int64_t kChunk = int64_t{1} << 20;
    const int64_t count = std::min(kChunk, size - read);
    CAISSON_TRY(const std::string chunk, linux_sys::ReadAt(fd_.get(), read, count));
    read += count;
    buffer += chunk;
    size_t begin = 0;
    for (size_t end = 0; (end = buffer.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string_view line = std::string_view(buffer).substr(begin, end - begin);
      if (tally_.lines() == 0) {
        if (Result<TranscriptHeader> header = ParseTranscriptHeader(line); !header) {
          return std::move(header).error().In(name_ + ": line 1");
        }
        tally_.Add(line);
        continue;
      }
      Result<TranscriptLine> parsed = ParseTranscriptLine(line);
      if (!parsed) return std::move(parsed).error().In(name_ + ": line " + std::to_string(tally_.lines() + 1));
      if (parsed->note.command) noted_command_ = *parsed->note.command;
      parsed->note.sha256.empty() ? tally_.Add(line) : tally_.AddCheckLine(line);
    }
    buffer.erase(0, begin);
    if (buffer.size() > kMaxTranscriptLine) return Error::Invalid(name_ + ": a line is too long");
  }
  if (!buffer.empty() && ::ftruncate(fd_.get(), tally_.bytes()) != 0) return Error::System(errno, "truncate " + name_);
  full_ = tally_.bytes() + kReserve > options_.max_bytes;
  return {};
}

Status TranscriptWriter::WriteLines(const std::string& lines) {
  TranscriptTally after = tally_;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    after.Add(std::string_view(lines).substr(begin, end - begin));
    begin = end + 1;
  }
  std::string check;
  if (after.unchecked().size() >= kLinesPerCheck) {
    check = after.CheckLine();
    after.AddCheckLine(std::string_view(check).substr(0, check.size() - 1));
  }
  if (Status written = linux_sys::WriteAll(fd_.get(), lines + check); !written) {
    // If this fails too, the next writer finds a torn line and removes it.
    if (::ftruncate(fd_.get(), tally_.bytes()) != 0) failure_ = Error::System(errno, "truncate " + name_);
    failure_ = std::move(written).error().In(name_);
    return *failure_;
  }
  tally_ = std::move(after);
  return {};
}

Status TranscriptWriter::Record(uint32_t command, char code, std::string_view data, int64_t now_ns) {
  if (failure_) return *failure_;
  const int64_t interval_us = std::max<int64_t>((now_ns - last_ns_.value_or(now_ns)) / 1000, 0);
  const bool is_other = command != noted_command_;
  const std::string lines =
      FormatTranscriptEvent(interval_us, code, data, is_other ? std::optional(command) : std::nullopt);
  const bool fits = tally_.bytes() + static_cast<int64_t>(lines.size()) + kReserve <= options_.max_bytes;
  if (full_ || !fits) {
    if (code == 'o' || code == 'i') dropped_bytes_ += static_cast<int64_t>(data.size());
    if (full_) return {};
    full_ = true;
    const std::string limit = std::to_string(options_.max_bytes);
    return WriteLines(FormatTranscriptEvent(
        interval_us, 'm', "caisson: the transcript ends here: it reached its limit of " + limit + " bytes", 0));
  }
  CAISSON_TRY_VOID(WriteLines(lines));
  noted_command_ = command;
  // What was rounded off is added to the next interval.
  last_ns_ = last_ns_ ? *last_ns_ + interval_us * 1000 : now_ns;
  return {};
}

Status TranscriptWriter::Stream(uint32_t command, char code, std::string_view bytes, int64_t now_ns) {
  if (bytes.empty()) return failure_ ? Status(*failure_) : Status();
  std::string& held_back = held_back_[{command, code}];
  std::string joined;
  if (!held_back.empty()) {
    joined = held_back.append(bytes);
    bytes = joined;
  }
  held_back.clear();
  while (!bytes.empty()) {
    std::string_view piece = bytes.substr(0, kMaxEventBytes);
    piece.remove_suffix(IncompleteTail(piece));
    if (piece.empty()) break;
    CAISSON_TRY_VOID(Record(command, code, piece, now_ns));
    bytes.remove_prefix(piece.size());
  }
  held_back = bytes;
  return {};
}

Status TranscriptWriter::FlushHeldBack(uint32_t command, int64_t now_ns) {
  for (const char code : {'o', 'i'}) {
    const auto found = held_back_.find({command, code});
    if (found == held_back_.end()) continue;
    const std::string rest = std::move(found->second);
    held_back_.erase(found);
    if (!rest.empty()) CAISSON_TRY_VOID(Record(command, code, rest, now_ns));
  }
  return {};
}

Status TranscriptWriter::Output(uint32_t command, std::string_view bytes, int64_t now_ns) {
  return Stream(command, 'o', bytes, now_ns);
}

Status TranscriptWriter::Input(uint32_t command, std::string_view bytes, int64_t now_ns) {
  if (!options_.record_input) return {};
  return Stream(command, 'i', bytes, now_ns);
}

Status TranscriptWriter::Resize(uint32_t command, int rows, int columns, int64_t now_ns) {
  const auto within = [](int size) { return std::to_string(std::clamp(size, 1, 65535)); };
  return Record(command, 'r', within(columns) + "x" + within(rows), now_ns);
}

Status TranscriptWriter::CommandBegan(uint32_t command, std::string_view text, int64_t now_ns) {
  std::string_view shown = text.substr(0, kMaxCommandText);
  if (shown.size() < text.size()) shown.remove_suffix(IncompleteTail(shown));
  return Record(command, 'm', shown, now_ns);
}

Status TranscriptWriter::CommandEnded(uint32_t command, std::optional<int> exit_code, int64_t now_ns) {
  CAISSON_TRY_VOID(FlushHeldBack(command, now_ns));
  const bool is_code = exit_code && *exit_code >= 0 && *exit_code <= 255;
  return Record(command, 'x', is_code ? std::to_string(*exit_code) : "", now_ns);
}

Result<TranscriptDigest> TranscriptWriter::Finish() {
  while (!held_back_.empty()) {
    const uint32_t command = held_back_.begin()->first.first;
    CAISSON_TRY_VOID(FlushHeldBack(command, last_ns_.value_or(0)));
  }
  if (failure_) return *failure_;
  if (!tally_.unchecked().empty()) {
    const std::string check = tally_.CheckLine();
    if (Status written = linux_sys::WriteAll(fd_.get(), check); !written) {
      return std::move(written).error().In(name_);
    }
    tally_.AddCheckLine(std::string_view(check).substr(0, check.size() - 1));
  }
  if (::fsync(fd_.get()) != 0) return Error::System(errno, "fsync " + name_);
  failure_ = Error::Conflict(name_ + ": the transcript is finished");
  return tally_.digest();
}

}  // namespace caisson::session
