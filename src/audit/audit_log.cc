#include "audit/audit_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "base/utf8.h"
#include "linux/files.h"
#include "verify/json_fields.h"

namespace caisson::audit {
namespace {

struct OpenedFile {
  UniqueFd fd;
  int64_t size = 0;
};

// The lock goes with the descriptor, however we leave.
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

Result<OpenedFile> OpenForAppending(const std::string& path) {
  return OpenLocked(path, O_RDWR | O_APPEND | O_CREAT, LOCK_EX);
}

Result<std::string> ReadAt(const OpenedFile& file, const std::string& path, int64_t offset, size_t size) {
  std::string bytes(size, '\0');
  for (size_t done = 0; done < size;) {
    const ssize_t count = ::pread(file.fd.get(), bytes.data() + done, size - done, offset + static_cast<int64_t>(done));
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

// The record at the end; nothing when the file is empty.
Result<std::optional<Head>> ReadHead(const OpenedFile& file, const std::string& path) {
  if (file.size == 0) return std::optional<Head>();
  const auto tail_size = static_cast<size_t>(std::min<int64_t>(file.size, kMaxRecordBytes + 2));
  CAISSON_TRY(const std::string tail, ReadAt(file, path, file.size - static_cast<int64_t>(tail_size), tail_size));
  const size_t last_end = tail.rfind('\n');
  const bool shows_begin = last_end != std::string::npos || static_cast<int64_t>(tail.size()) == file.size;
  if (tail.back() != '\n' && shows_begin) {
    const size_t torn = last_end == std::string::npos ? tail.size() : tail.size() - last_end - 1;
    return Error::Invalid(path + ": " + TornMessage(path, file.size - static_cast<int64_t>(torn)));
  }
  const size_t previous_end = tail.size() < 2 ? std::string::npos : tail.rfind('\n', tail.size() - 2);
  const size_t begin = previous_end == std::string::npos ? 0 : previous_end + 1;
  const std::string_view line = std::string_view(tail).substr(begin, tail.size() - 1 - begin);
  const Result<Record> record = ParseAuditRecord(line);
  const bool intact = record && Canonical(*record) == line && HashOf(*record) == record->hash;
  if (!intact) {
    return Error::Invalid(
        path + ": the last line is not an intact record, so none can follow it; see: caisson audit verify " + path);
  }
  return std::optional<Head>(Head{record->seq, record->hash});
}

// The name of a new file is only safe once its directory is on the disk.
Status SyncDirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  CAISSON_TRY(UniqueFd fd, linux_sys::Open(directory, O_RDONLY | O_DIRECTORY));
  if (::fsync(fd.get()) != 0) return Error::System(errno, "fsync " + directory);
  return {};
}

Status WriteDurably(const OpenedFile& file, const std::string& path, std::string_view line) {
  while (!line.empty()) {
    const ssize_t count = ::write(file.fd.get(), line.data(), line.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Error::System(count < 0 ? errno : EIO, "write " + path);
    line.remove_prefix(static_cast<size_t>(count));
  }
  if (::fsync(file.fd.get()) != 0) return Error::System(errno, "fsync " + path);
  if (file.size == 0) return SyncDirectoryOf(path);
  return {};
}

// Lines of the first `size` bytes of a file, in pieces: a log may be larger than memory.
class LineReader {
 public:
  LineReader(const OpenedFile& file, const std::string& path) : file_(file), path_(path) {}

  struct Line {
    std::string_view text;  // valid until the next call; cut off when it is longer than any record
    bool has_end = true;
    int64_t offset = 0;
  };

  // Nothing at the end.
  Result<std::optional<Line>> Next() {
    size_t end = 0;
    while ((end = buffer_.find('\n', begin_)) == std::string::npos) {
      const bool too_long = buffer_.size() - begin_ > kMaxRecordBytes;
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
    CAISSON_TRY(const std::string chunk, ReadAt(file_, path_, read_, static_cast<size_t>(size)));
    buffer_ += chunk;
    read_ += size;
    return {};
  }

  const OpenedFile& file_;
  const std::string& path_;
  std::string buffer_;
  size_t begin_ = 0;
  int64_t read_ = 0;
};

// What is wrong with a line by itself.
std::optional<Verification::Finding> FaultInLine(std::string_view text, const Result<Record>& record, int64_t number) {
  using Finding = Verification::Finding;
  if (!record) return Finding{ChainFault::kMalformed, number, "not an audit record: " + record.error().message};
  if (Canonical(*record) != text) {
    return Finding{ChainFault::kMalformed, number, "not in canonical form, so not as it was written"};
  }
  if (HashOf(*record) != record->hash) {
    return Finding{ChainFault::kEdited, number, "does not match its hash: it was changed after it was written"};
  }
  return std::nullopt;
}

// `record` is not the one due after `before`. Whether the due one is further down tells a move from a removal.
Result<Verification::Finding> ExplainOrder(const Record& record, int64_t due, int64_t number, LineReader& rest) {
  const std::string what = "seq " + std::to_string(record.seq) + " where " + std::to_string(due) + " is due: ";
  if (record.seq < due) {
    return Verification::Finding{ChainFault::kReordered, number, what + "it was moved or repeated"};
  }
  for (;;) {
    CAISSON_TRY(const std::optional<LineReader::Line> line, rest.Next());
    if (!line) break;
    const Result<Record> later = ParseAuditRecord(line->text);
    if (later && later->seq == due) {
      return Verification::Finding{ChainFault::kReordered, number, what + "records were moved"};
    }
  }
  return Verification::Finding{
      ChainFault::kMissing, number,
      what + std::to_string(record.seq - due) + (record.seq - due == 1 ? " record is" : " records are") + " missing"};
}

}  // namespace

Result<AuditLog> AuditLog::Open(std::string path) {
  CAISSON_TRY(const OpenedFile file, OpenForAppending(path));
  CAISSON_TRY_VOID(ReadHead(file, path));
  return AuditLog(std::move(path));
}

Result<Head> AuditLog::Append(const Entry& entry) const { return Append(std::span(&entry, 1)); }

Result<Head> AuditLog::Append(std::span<const Entry> entries) const {
  CAISSON_TRY(const OpenedFile file, OpenForAppending(path_));
  CAISSON_TRY(std::optional<Head> head, ReadHead(file, path_));
  std::string lines;
  for (const Entry& entry : entries) {
    const Record record = Chain(entry, head, UtcNow());
    const std::string line = Canonical(record);
    // What our own reader would refuse must not get in: nothing could be appended after it.
    if (const Result<Record> read_back = ParseAuditRecord(line); !read_back) {
      return Error(read_back.error()).In("audit record");
    }
    lines.append(line).push_back('\n');
    head = Head{record.seq, record.hash};
  }
  if (const Status written = WriteDurably(file, path_, lines); !written) {
    // Whether or not this works, nobody was told that the record exists. Where it does not, the next append finds a
    // torn line and says so.
    if (::ftruncate(file.fd.get(), file.size) == 0) ::fsync(file.fd.get());
    return written.error();
  }
  return *head;
}

const char* ChainFaultName(ChainFault fault) {
  constexpr std::array kNames = {"torn", "malformed", "edited", "missing", "reordered", "replaced", "truncated"};
  return kNames[static_cast<size_t>(fault)];
}

Result<Verification> Verify(const std::string& path, const std::optional<Head>& expected) {
  // The lock only spares us a half-written line. It is given back before reading, lest a slow reader hold up the work;
  // what is below the size seen here does not change any more.
  CAISSON_TRY(const OpenedFile file, OpenLocked(path, O_RDONLY, LOCK_SH));
  ::flock(file.fd.get(), LOCK_UN);
  Verification verification;
  LineReader lines(file, path);
  for (int64_t number = 1;; ++number) {
    CAISSON_TRY(const std::optional<LineReader::Line> line, lines.Next());
    if (!line) break;
    if (!line->has_end) {
      verification.finding = {ChainFault::kTorn, number, TornMessage(path, line->offset)};
      return verification;
    }
    const Result<Record> record = ParseAuditRecord(line->text);
    verification.finding = FaultInLine(line->text, record, number);
    if (verification.finding) return verification;
    const int64_t due = verification.records;
    if (record->seq != due) {
      CAISSON_TRY(verification.finding, ExplainOrder(*record, due, number, lines));
      return verification;
    }
    if (verification.head && record->prev != verification.head->hash) {
      verification.finding = {ChainFault::kReplaced, number,
                              "follows another record than the one above it, which was replaced"};
      return verification;
    }
    if (expected && expected->seq == due && expected->hash != record->hash) {
      verification.finding = {ChainFault::kReplaced, number,
                              "is not the record expected, " + FormatHead(*expected) + ": the log was written anew"};
      return verification;
    }
    verification.head = Head{record->seq, record->hash};
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
