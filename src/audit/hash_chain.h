// A file of lines that are a hash chain: each is a JSON object that holds its place (seq), the hash of the line before
// it (prev) and its own hash, which covers both. A line that is changed, removed or moved makes all later hashes wrong.
// The audit log and the events of a session are such files; a ChainFormat tells their lines apart.
//
// A line has one spelling, its canonical form: members sorted by name, no blanks, UTF-8 unescaped, whole numbers only.
// Its hash is the SHA-256 of prev, as text, followed by the canonical form without the hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::audit {

// Identifies the last line and, through the hash chain, the whole file. A copy kept elsewhere later proves that nothing
// was cut off.
struct Head {
  int64_t seq = 0;
  std::string hash;
};
// "SEQ:HASH"
Result<Head> ParseHead(const std::string& text);
std::string FormatHead(const Head& head);

inline constexpr int64_t kMaxSeq = (int64_t{1} << 53) - 1;  // the largest integer that every JSON reader can hold
inline constexpr char kNoHash[] = "0000000000000000000000000000000000000000000000000000000000000000";

// What the chain needs to know of a line.
struct ChainLink {
  int64_t seq = 0;
  std::string prev;
  std::string hash;       // that the line states
  std::string canonical;  // the line as it must be spelt
  std::string true_hash;  // that it must state
};

struct ChainFormat {
  const char* noun;  // "audit record"
  size_t max_line_bytes;
  // Errors are ErrorKind::kInvalid and name the field.
  Result<ChainLink> (*read)(std::string_view line);
};

// The spelling of a line, or of a part of it, and the hash of a line that is given without its hash.
std::string CanonicalJson(const nlohmann::json& value);
std::string ChainHash(const std::string& prev, const nlohmann::json& without_hash);

// The file, open for appending and locked against all other writers until this object ends.
class ChainFile {
 public:
  static Result<ChainFile> Lock(const std::string& path);

  int64_t size() const { return size_; }
  // The line at the end; nothing when the file is empty. Fails if nothing can be appended after it.
  Result<std::optional<Head>> ReadHead(const ChainFormat& format) const;
  // Removes a last line without an end, which a crash while writing leaves behind. Returns its bytes; empty: the file
  // ends with a whole line.
  Result<std::string> RemoveTornLine(const ChainFormat& format);
  // `lines` are whole. On any error the file is unchanged. With `durable` they are on the disk afterwards, with all
  // before them.
  Status Append(std::string_view lines, bool durable);
  Status Sync() const;

 private:
  ChainFile() = default;

  std::string path_;
  UniqueFd fd_;
  int64_t size_ = 0;
};

enum class ChainFault {
  kTorn,       // the last line has no end: a crash while writing
  kMalformed,  // not a line in canonical form
  kEdited,     // does not match its own hash
  kMissing,    // lines before it are not in the file
  kReordered,  // another line is expected here, and one of the two is elsewhere
  kReplaced,   // matches its own hash, but not the hash that the file or the caller names
  kTruncated,  // the file ends before the head the caller knows of
};

const char* ChainFaultName(ChainFault fault);

struct Verification {
  struct Finding {
    ChainFault fault;
    int64_t line;  // counted from 1
    std::string message;
  };

  int64_t records = 0;       // intact ones, from the first on
  std::optional<Head> head;  // of those
  std::optional<Finding> finding;
};

// Called with each line that is intact and in its place; what it returns is a fault of that line.
using LineCheck = std::function<std::optional<Verification::Finding>(std::string_view line, int64_t number)>;

// Reads the whole file. Without `expected` it cannot detect lines cut off at the end, or a file rewritten from some
// line to the end. With `expected` both are detected up to that line. An Error means only that the file cannot be read.
Result<Verification> VerifyChain(const std::string& path, const ChainFormat& format,
                                 const std::optional<Head>& expected, const LineCheck& check = nullptr);

}  // namespace caisson::audit
