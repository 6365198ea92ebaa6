#include "session/record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "linux/files.h"
#include "session/tree.h"

namespace caisson::session {

namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool IsPlain(char c) { return c > ' ' && c <= '~' && c != '%'; }

}  // namespace

std::string EncodePath(std::string_view path) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : path) {
    if (IsPlain(c)) {
      text += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    text += '%';
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::optional<std::string> DecodePath(std::string_view field) {
  std::string path;
  for (size_t i = 0; i < field.size(); ++i) {
    if (IsPlain(field[i])) {
      path += field[i];
      continue;
    }
    if (field[i] != '%' || i + 2 >= field.size()) return std::nullopt;
    const int high = HexDigit(field[i + 1]), low = HexDigit(field[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    const char byte = static_cast<char>(high << 4 | low);
    if (byte == '\0' || IsPlain(byte)) return std::nullopt;  // one path has one spelling
    path += byte;
    i += 2;
  }
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view name = std::string_view(path).substr(at, end - at);
    if (name.empty() || name == "." || name == "..") return std::nullopt;
    at = end + 1;
  }
  return path;
}

Result<std::optional<std::vector<std::string_view>>> RecordReader::Next() {
  using Fields = std::optional<std::vector<std::string_view>>;
  if (rest_.empty()) return Fields();
  const size_t end = rest_.find('\n');
  if (end == std::string_view::npos) return Error::Invalid("the last line is cut off");
  std::string_view line = rest_.substr(0, end);
  rest_.remove_prefix(end + 1);
  std::vector<std::string_view> fields;
  for (;;) {
    const size_t blank = line.find(' ');
    fields.push_back(line.substr(0, blank));
    if (blank == std::string_view::npos) break;
    line.remove_prefix(blank + 1);
    if (fields.size() > 16) return Error::Invalid("a line has too many fields");
  }
  return Fields(std::move(fields));
}

std::optional<uint64_t> ParseNumber(std::string_view field) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  if (field.empty() || error != std::errc() || end != field.data() + field.size()) return std::nullopt;
  if (field.size() > 1 && field[0] == '0') return std::nullopt;
  return number;
}

Result<std::string> ReadWholeFile(int directory_fd, const std::string& name, size_t max_bytes) {
  CAISSON_TRY(UniqueFd file, OpenBelow(directory_fd, name, O_RDONLY));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return Error::System(errno, "look at " + QuotedPath(name));
  if (!S_ISREG(info.st_mode)) return Error::Invalid(QuotedPath(name) + ": not a regular file");
  if (static_cast<uint64_t>(info.st_size) > max_bytes) {
    return Error::Exhausted(QuotedPath(name) + ": larger than " + std::to_string(max_bytes) + " bytes");
  }
  return linux_sys::ReadAt(file.get(), 0, info.st_size);
}

Status ReplaceFile(int directory_fd, const std::string& name, std::string_view text) {
  const std::string draft = name + ".new";
  if (::unlinkat(directory_fd, draft.c_str(), 0) != 0 && errno != ENOENT)
    return Error::System(errno, "remove " + draft);
  UniqueFd file(::openat(directory_fd, draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return Error::System(errno, "create " + draft);
  CAISSON_TRY_VOID(linux_sys::WriteAll(file.get(), text));
  if (::fsync(file.get()) != 0) return Error::System(errno, "flush " + draft);
  if (::renameat(directory_fd, draft.c_str(), directory_fd, name.c_str()) != 0) {
    return Error::System(errno, "rename " + draft);
  }
  CAISSON_TRY(UniqueFd directory, OpenBelow(directory_fd, "", O_RDONLY | O_DIRECTORY));
  if (::fsync(directory.get()) != 0) return Error::System(errno, "flush the directory of " + name);
  return {};
}

}  // namespace caisson::session
