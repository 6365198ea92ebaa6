#include "audit/hash_chain.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "linux/files.h"
#include "verify/digest.h"
#include "verify/json_fields.h"

namespace caisson::audit {
namespace {

struct OpenedFile {
  UniqueFd fd;
  int64_t size = 0;
};

// The lock is released with the descriptor on every path.
Result<OpenedFile> OpenLocked(const std::string& path, int flags, int lock) {
  OpenedFile file;
  CAISSON_TRY(file.fd, linux_sys::Open(path, flags | O_NONBLOCK | O_NOCTTY));
  while (::flock(file.fd.get(), lock) != 0) {
    if (errno != EINTR) return Error::System(errno, "lock " + path);
  }
  struct stat info {};
  if (::fstat(file.fd.get(), &info) != 0) return Error::System(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return Error::Invalid(path + ": not a regular file");
  file.size = info.st_size;
  return file;
}

Result<std::string> ReadAt(int fd, const std::string& path, int64_t offset, size_t size) {
  std::string bytes(size, '\0');
  for (size_t done = 0; done < size;) {
    const ssize_t count = ::pread(fd, bytes.data() + done, size - done, offset + static_cast<int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error::System(errno, "read " + path);
    if (count == 0) return Error::System(EIO, "read " + path + ": it shrank");
    done += static_cast<size_t>(count);
  }
  return bytes;
}

std::string TornMessage(const std::string& path, int64_t whole_bytes) {
  return "the last line is cut off, as by a crash while it was written; it was never acknowledged. To go on, keep a "
         "copy "
         "and remove it: truncate -s " +
         std::to_string(whole_bytes) + " " + path;
}

// The end of a file, long enough for the longest line.
struct Tail {
  std::string bytes;
  bool shows_begin = false;  // the last line begins in `bytes`
  size_t torn_bytes = 0;     // of a last line without an end
};

Result<Tail> ReadTail(int fd, int64_t file_size, const std::string& path, size_t max_line_bytes) {
  Tail tail;
  const auto size = static_cast<size_t>(std::min<int64_t>(file_size, static_cast<int64_t>(max_line_bytes) + 2));
  CAISSON_TRY(tail.bytes, ReadAt(fd, path, file_size - static_cast<int64_t>(size), size));
  const size_t last_end = tail.bytes.rfind('\n');
  tail.shows_begin = last_end != std::string::npos || static_cast<int64_t>(size) == file_size;
  if (!tail.bytes.empty() && tail.bytes.back() != '\n') {
    tail.torn_bytes = last_end == std::string::npos ? size : size - last_end - 1;
  }
  return tail;
}

// The name of a new file is only safe once its directory is on the disk.
Status SyncDirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  CAISSON_TRY(UniqueFd fd, linux_sys::Open(directory, O_RDONLY | O_DIRECTORY));
  if (::fsync(fd.get()) != 0) return Error::System(errno, "fsync " + directory);
  return {};
}

// Lines of the first `size` bytes of a file, in pieces: a log may be larger than memory.
class LineReader {
 public:
  LineReader(const OpenedFile& file, const std::string& path, size_t max_line_bytes)
      : file_(file), path_(path), max_line_bytes_(max_line_bytes) {}

  struct Line {
    std::string_view text;  // valid until the next call; cut off when it is longer than any line may be
    bool has_end = true;
    int64_t offset = 0;
  };

  // Nothing at the end of the file.
  Result<std::optional<Line>> Next() {
    size_t end = 0;
    while ((end = buffer_.find('\n', begin_)) == std::string::npos) {
      const bool too_long = buffer_.size() - begin_ > max_line_bytes_;
      if (too_long || read_ == file_.size) {
        if (begin_ == buffer_.size()) return std::optional<Line>();
        const Line line{std::string_view(buffer_).substr(begin_), too_long, PositionOf(begin_)};
        begin_ = buffer_.size();
        return std::optional<Line>(line);
      }
      CAISSON_TRY_VOID(Fill());
    }
    const Line line{std::string_view(buffer_).substr(begin_, end - begin_), true, PositionOf(begin_)};
    begin_ = end + 1;
    return std::optional<Line>(line);
  }

 private:
  int64_t PositionOf(size_t index) const { return read_ - static_cast<int64_t>(buffer_.size() - index); }

  Status Fill() {
    constexpr int64_t kChunk = int64_t{1} << 20;
    buffer_.erase(0, begin_);
    begin_ = 0;
    const int64_t size = std::min(kChunk, file_.size - read_);
    CAISSON_TRY(const std::string chunk, ReadAt(file_.fd.get(), path_, read_, static_cast<size_t>(size)));
    buffer_ += chunk;
    read_ += size;
    return {};
  }

  const OpenedFile& file_;
  const std::string& path_;
  size_t max_line_bytes_;
  std::string buffer_;
  size_t begin_ = 0;
  int64_t read_ = 0;
};

// The fault of a line, judged without its neighbours.
std::optional<Verification::Finding> FaultInLine(std::string_view text, const Result<ChainLink>& link,
                                                 const ChainFormat& format, int64_t number) {
  using Finding = Verification::Finding;
  if (!link) {
    return Finding{ChainFault::kMalformed, number, "not " + std::string(format.noun) + ": " + link.error().message};
  }
  if (link->canonical != text) {
    return Finding{ChainFault::kMalformed, number, "not in canonical form, so it was changed after it was written"};
  }
  if (link->true_hash != link->hash) {
    return Finding{ChainFault::kEdited, number, "does not match its hash: it was changed after it was written"};
  }
  return std::nullopt;
}

// `link` is not the expected successor of the line above. If the expected one is further down, records were moved;
// otherwise they were removed.
Result<Verification::Finding> ExplainOrder(const ChainLink& link, int64_t due, int64_t number,
                                           const ChainFormat& format, LineReader& rest) {
  const std::string what = "seq " + std::to_string(link.seq) + " where " + std::to_string(due) + " is due: ";
  if (link.seq < due) {
    return Verification::Finding{ChainFault::kReordered, number, what + "it was moved or repeated"};
  }
  for (;;) {
    CAISSON_TRY(const std::optional<LineReader::Line> line, rest.Next());
    if (!line) break;
    const Result<ChainLink> later = format.read(line->text);
    if (later && later->seq == due) {
      return Verification::Finding{ChainFault::kReordered, number, what + "records were moved"};
    }
  }
  return Verification::Finding{
      ChainFault::kMissing, number,
      what + std::to_string(link.seq - due) + (link.seq - due == 1 ? " record is" : " records are") + " missing"};
}

}  // namespace

// nlohmann::json keeps members sorted by the bytes of their names.
std::string CanonicalJson(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string ChainHash(const std::string& prev, const nlohmann::json& without_hash) {
  return verify::Sha256Hex(prev + CanonicalJson(without_hash));
}

Result<ChainFile> ChainFile::Lock(const std::string& path) {
  CAISSON_TRY(OpenedFile opened, OpenLocked(path, O_RDWR | O_APPEND | O_CREAT, LOCK_EX));
  ChainFile file;
  file.path_ = path;
  file.fd_ = std::move(opened.fd);
  file.size_ = opened.size;
  return file;
}

Result<std::optional<Head>> ChainFile::ReadHead(const ChainFormat& format) const {
  if (size_ == 0) return std::optional<Head>();
  CAISSON_TRY(const Tail tail, ReadTail(fd_.get(), size_, path_, format.max_line_bytes));
  if (tail.torn_bytes != 0 && tail.shows_begin) {
    return Error::Invalid(path_ + ": " + TornMessage(path_, size_ - static_cast<int64_t>(tail.torn_bytes)));
  }
  const std::string& bytes = tail.bytes;
  const size_t previous_end = bytes.size() < 2 ? std::string::npos : bytes.rfind('\n', bytes.size() - 2);
  const size_t begin = previous_end == std::string::npos ? 0 : previous_end + 1;
  const std::string_view line = std::string_view(bytes).substr(begin, bytes.size() - 1 - begin);
  const Result<ChainLink> link = format.read(line);
  const bool intact = link && link->canonical == line && link->true_hash == link->hash;
  if (!intact) {
    return Error::Invalid(
        path_ + ": the last line is not an intact record, so none can follow it; see: caisson audit verify " + path_);
  }
  return std::optional<Head>(Head{link->seq, link->hash});
}

Result<std::string> ChainFile::RemoveTornLine(const ChainFormat& format) {
  CAISSON_TRY(const Tail tail, ReadTail(fd_.get(), size_, path_, format.max_line_bytes));
  if (tail.torn_bytes == 0) return std::string();
  if (!tail.shows_begin) return Error::Invalid(path_ + ": the last line is longer than any line may be");
  const int64_t whole = size_ - static_cast<int64_t>(tail.torn_bytes);
  if (::ftruncate(fd_.get(), whole) != 0) return Error::System(errno, "truncate " + path_);
  size_ = whole;
  return tail.bytes.substr(tail.bytes.size() - tail.torn_bytes);
}

Status ChainFile::Append(std::string_view lines, bool durable) {
  Status written = linux_sys::WriteAll(fd_.get(), lines);
  if (!written) {
    written = Error(written.error()).In(path_);
  } else if (durable) {
    written = Sync();
  }
  if (written) {
    size_ += static_cast<int64_t>(lines.size());
    return {};
  }
  // The caller gets an error whether or not this works. If it fails, the next append finds a torn line and reports it.
  if (::ftruncate(fd_.get(), size_) == 0) ::fsync(fd_.get());
  return written;
}

Status ChainFile::Sync() const {
  if (::fsync(fd_.get()) != 0) return Error::System(errno, "fsync " + path_);
  if (size_ == 0) return SyncDirectoryOf(path_);
  return {};
}

const char* ChainFaultName(ChainFault fault) {
  constexpr std::array kNames = {"torn", "malformed", "edited", "missing", "reordered", "replaced", "truncated"};
  return kNames[static_cast<size_t>(fault)];
}

Result<Verification> VerifyChain(const std::string& path, const ChainFormat& format,
                                 const std::optional<Head>& expected, const LineCheck& check) {
  // The lock only prevents a half-written last line. It is released before reading, so that a slow reader does not
  // block writers; bytes below the size seen here do not change any more.
  CAISSON_TRY(const OpenedFile file, OpenLocked(path, O_RDONLY, LOCK_SH));
  ::flock(file.fd.get(), LOCK_UN);
  Verification verification;
  LineReader lines(file, path, format.max_line_bytes);
  for (int64_t number = 1;; ++number) {
    CAISSON_TRY(const std::optional<LineReader::Line> line, lines.Next());
    if (!line) break;
    if (!line->has_end) {
      verification.finding = {ChainFault::kTorn, number, TornMessage(path, line->offset)};
      return verification;
    }
    const Result<ChainLink> link = format.read(line->text);
    verification.finding = FaultInLine(line->text, link, format, number);
    if (verification.finding) return verification;
    const int64_t due = verification.records;
    if (link->seq != due) {
      CAISSON_TRY(verification.finding, ExplainOrder(*link, due, number, format, lines));
      return verification;
    }
    if (verification.head && link->prev != verification.head->hash) {
      verification.finding = {ChainFault::kReplaced, number, "does not follow the record above it, which was replaced"};
      return verification;
    }
    if (expected && expected->seq == due && expected->hash != link->hash) {
      verification.finding = {ChainFault::kReplaced, number,
                              "is not the record expected, " + FormatHead(*expected) + ": the log was written anew"};
      return verification;
    }
    if (check) verification.finding = check(line->text, number);
    if (verification.finding) return verification;
    verification.head = Head{link->seq, link->hash};
    ++verification.records;
  }
  if (expected && expected->seq >= verification.records) {
    verification.finding = {ChainFault::kTruncated, verification.records + 1,
                            "the log ends before record " + FormatHead(*expected) + ": its end was cut off"};
  }
  return verification;
}

Result<Head> ParseHead(const std::string& text) {
  Head head;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), head.seq);
  const bool has_number = failure == std::errc() && head.seq >= 0 && *end == ':';
  if (!has_number)
    return Error::Invalid(EscapeForTerminal(text) + ": expected SEQ:HASH, as caisson audit verify prints it");
  const std::string hash(end + 1, text.data() + text.size());
  CAISSON_TRY(head.hash, verify::ReadSha256(nlohmann::json(hash), "the hash in SEQ:HASH"));
  return head;
}

std::string FormatHead(const Head& head) { return std::to_string(head.seq) + ":" + head.hash; }

}  // namespace caisson::audit
