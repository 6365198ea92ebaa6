#include "policy/syntax.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/words.h"
#include "network/rule.h"
#include "policy/destinations.h"

namespace caisson::policy {
namespace {

constexpr size_t kMaxPathBytes = 4096;
constexpr size_t kMaxComponentBytes = 255;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool HasComponent(std::string_view path, std::string_view component) {
  const std::vector<std::string_view> parts = Split(path, '/');
  return std::find(parts.begin(), parts.end(), component) != parts.end();
}

Fault FaultInComponents(std::string_view relative) {
  for (const std::string_view part : Split(relative, '/')) {
    if (part.empty()) return "must not contain an empty component (a doubled or trailing \"/\")";
    if (part == "." || part == "..") return "must not contain the component " + Quoted(part);
    if (part.size() > kMaxComponentBytes) {
      return "has a component of " + std::to_string(part.size()) + " bytes; at most " +
             std::to_string(kMaxComponentBytes) + " are allowed";
    }
  }
  return std::nullopt;
}

bool IsPort(std::string_view text) {
  if (text.empty() || text.size() > 5 || text[0] == '0') return false;
  if (!std::all_of(text.begin(), text.end(), IsDigit)) return false;
  int port = 0;
  for (const char digit : text) port = port * 10 + (digit - '0');
  return port <= 65'535;
}

bool IsIpv4(const std::vector<std::string_view>& labels) {
  return labels.size() == 4 && std::all_of(labels.begin(), labels.end(), [](std::string_view label) {
           if (label.empty() || label.size() > 3 || (label.size() > 1 && label[0] == '0')) return false;
           int value = 0;
           for (const char digit : label) {
             if (!IsDigit(digit)) return false;
             value = value * 10 + (digit - '0');
           }
           return value <= 255;
         });
}

// SECURITY: "127.1", "0x7f.1" and "2130706433" are host names to a matcher but addresses to inet_aton, so a last label
// that could be a number is refused unless the whole is a plain dotted quad.
bool CouldBeNumber(std::string_view label) {
  if (label.size() >= 2 && label[0] == '0' && (label[1] == 'x' || label[1] == 'X')) {
    return std::all_of(label.begin() + 2, label.end(), IsHexDigit);
  }
  return std::all_of(label.begin(), label.end(), IsDigit);
}

Fault FaultInHostName(std::string_view host) {
  constexpr size_t kMaxHostBytes = 253;
  constexpr size_t kMaxLabelBytes = 63;
  if (host.empty()) return "names no host";
  if (host.size() > kMaxHostBytes) return "has a host name longer than " + std::to_string(kMaxHostBytes) + " bytes";
  const std::vector<std::string_view> labels = Split(host, '.');
  for (const std::string_view label : labels) {
    if (label.empty()) return "has an empty label in its host name";
    if (!IsWord(label, "-", kMaxLabelBytes) || label.front() == '-' || label.back() == '-') {
      return "has a bad label " + Quoted(label) +
             " in its host name; labels are letters, digits and inner hyphens, international names are written as xn--";
    }
  }
  if (CouldBeNumber(labels.back()) && !IsIpv4(labels)) return "looks like an IP address but is not a plain dotted quad";
  return std::nullopt;
}

bool IsUrlCharacter(char c) {
  return c > 0x20 && c < 0x7F && std::string_view("\"<>\\^`{|}#").find(c) == std::string_view::npos;
}

// "[::1]" and the like: only the characters are checked; the code that connects parses the address.
bool IsBracketedIpv6(std::string_view host) {
  return host.size() > 4 && host.front() == '[' && host.back() == ']' &&
         std::all_of(host.begin() + 1, host.end() - 1, [](char c) { return IsHexDigit(c) || c == ':' || c == '.'; }) &&
         host.find(':') != std::string_view::npos;
}

// Two digits at `offset`; -1 when there are none.
int TwoDigits(std::string_view text, size_t offset) {
  if (offset + 2 > text.size() || !IsDigit(text[offset]) || !IsDigit(text[offset + 1])) return -1;
  return (text[offset] - '0') * 10 + (text[offset + 1] - '0');
}

int DaysIn(int year, int month) {
  constexpr std::array<int, 12> kDays = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return month == 2 && leap ? 29 : kDays[static_cast<size_t>(month - 1)];
}

bool IsDate(std::string_view text) {
  const int century = TwoDigits(text, 0), years = TwoDigits(text, 2);
  const int month = TwoDigits(text, 5), day = TwoDigits(text, 8);
  if (century < 0 || years < 0 || text[4] != '-' || text[7] != '-' || month < 1 || month > 12) return false;
  return day >= 1 && day <= DaysIn(century * 100 + years, month);
}

bool IsTimeOfDay(std::string_view text) {
  const int hour = TwoDigits(text, 0), minute = TwoDigits(text, 3), second = TwoDigits(text, 6);
  const bool in_range = hour >= 0 && hour <= 23 && minute >= 0 && minute <= 59 && second >= 0 && second <= 60;
  return in_range && text[2] == ':' && text[5] == ':';
}

bool IsOffset(std::string_view text) {
  if (text == "Z" || text == "z") return true;
  if (text.size() != 6 || (text[0] != '+' && text[0] != '-') || text[3] != ':') return false;
  const int hour = TwoDigits(text, 1), minute = TwoDigits(text, 4);
  return hour >= 0 && hour <= 23 && minute >= 0 && minute <= 59;
}

int Base64Value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (IsDigit(c)) return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

}  // namespace

bool IsAtOrBelow(std::string_view path, std::string_view directory) {
  if (directory == "/") return path.substr(0, 1) == "/";
  return path.substr(0, directory.size()) == directory &&
         (path.size() == directory.size() || path[directory.size()] == '/');
}

std::string ToLowerAscii(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

bool IsWord(std::string_view text, std::string_view others, size_t max_bytes) {
  return !text.empty() && text.size() <= max_bytes && std::all_of(text.begin(), text.end(), [others](char c) {
    return IsLetter(c) || IsDigit(c) || others.find(c) != std::string_view::npos;
  });
}

bool IsEnvName(std::string_view text) { return IsWord(text, "_", text.size()) && !IsDigit(text[0]); }

bool IsSha256Hex(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), IsHexDigit);
}

Fault FaultInIdempotencyKey(std::string_view key) {
  const auto printable = [](char c) { return c > 0x20 && c < 0x7F; };
  if (!key.empty() && key.size() <= 255 && std::all_of(key.begin(), key.end(), printable)) return std::nullopt;
  return "must be 1 to 255 printable ASCII characters without blanks";
}

Fault FaultInPath(std::string_view path) {
  if (path.empty()) return "must not be empty";
  if (path.find('\0') != std::string_view::npos) return "must not contain a NUL character";
  if (path.size() > kMaxPathBytes) {
    return "takes " + std::to_string(path.size()) + " bytes; at most " + std::to_string(kMaxPathBytes) + " are allowed";
  }
  return std::nullopt;
}

Fault FaultInFileName(std::string_view name) {
  if (Fault fault = FaultInPath(name)) return fault;
  if (name[0] == '/') return "must be relative: it is placed below /workspace";
  return FaultInComponents(name);
}

std::optional<NameClash> FindFileUsedAsDirectory(std::vector<std::string_view> names) {
  // With "/" before every other byte, all names below a file directly follow it, so comparing neighbours suffices.
  const auto rank = [](char c) { return c == '/' ? 0 : static_cast<int>(static_cast<unsigned char>(c)) + 1; };
  std::sort(names.begin(), names.end(), [rank](std::string_view a, std::string_view b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [rank](char x, char y) { return rank(x) < rank(y); });
  });
  for (size_t i = 1; i < names.size(); ++i) {
    if (IsAtOrBelow(names[i], names[i - 1])) return NameClash{names[i - 1], names[i]};
  }
  return std::nullopt;
}

Fault FaultInImageName(std::string_view name) {
  constexpr size_t kMaxNameBytes = 128;
  // SECURITY: a name becomes a file name; it must not be "." or "..", nor hidden.
  if (!IsWord(name, "._-:", kMaxNameBytes) || name[0] == '.' || name[0] == '-' || name[0] == ':')
    return "must be 1 to 128 letters, digits or characters of \"._-:\", and begin with a letter or digit";
  for (const std::string_view scheme : {"sha256:", "venv:", "docker:", "docker-daemon:"}) {
    if (name.substr(0, scheme.size()) == scheme)
      return "must not begin with \"" + std::string(scheme) + "\", which means something else";
  }
  return std::nullopt;
}

Fault FaultInImageReference(std::string_view reference) {
  constexpr std::string_view kScheme = "sha256:";
  if (reference.substr(0, kScheme.size()) != kScheme) return FaultInImageName(reference);
  const std::string_view digits = reference.substr(kScheme.size());
  if (IsSha256Hex(digits) && digits.find_first_of("ABCDEF") == digits.npos) return std::nullopt;
  return "must have 64 hex digits in lower case behind \"sha256:\"";
}

Fault FaultInWorkingDirectory(std::string_view path) {
  if (Fault fault = FaultInPath(path)) return fault;
  if (HasComponent(path, "..")) return "must not contain the component \"..\"";
  for (const std::string_view directory : {"/workspace", "/scratch", "/tmp"}) {
    if (IsAtOrBelow(path, directory)) return std::nullopt;
  }
  return "must be /workspace, /scratch, /tmp or a directory below one of them";
}

Fault FaultInHostPath(std::string_view path) {
  if (Fault fault = FaultInPath(path)) return fault;
  if (path[0] != '/') return "must be an absolute path";
  return std::nullopt;
}

Fault FaultInMountTarget(std::string_view path) {
  if (Fault fault = FaultInHostPath(path)) return fault;
  if (path == "/") return "must not be the root directory";
  if (Fault fault = FaultInComponents(path.substr(1))) return fault;
  // SECURITY: where /usr is merged, /bin, /sbin and /lib* are links into it; a mount there would land below /usr.
  for (const std::string_view directory :
       {"/proc", "/dev", "/sys", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}) {
    if (IsAtOrBelow(path, directory)) return "must not be at or below " + std::string(directory);
  }
  for (const std::string_view own : {"/scratch", "/tmp", "/workspace"}) {
    if (path == own) return "is made for each sandbox: choose a path below it, or another";
  }
  if (IsAtOrBelow(path, "/var/tmp")) return "must not be at or below /var/tmp, which is a link to /tmp: choose /tmp/…";
  return std::nullopt;
}

Fault FaultInArtifactGlob(std::string_view glob) {
  if (Fault fault = FaultInPath(glob)) return fault;
  if (HasComponent(glob, "..")) return "must not contain the component \"..\"";
  for (const std::string_view directory : {"/scratch/", "/workspace/"}) {
    if (glob.size() > directory.size() && glob.substr(0, directory.size()) == directory) return std::nullopt;
  }
  return "must begin with /scratch/ or /workspace/ and name something there";
}

Fault FaultInAllowEntry(std::string_view entry) {
  if (entry.substr(0, kClassPrefix.size()) == kClassPrefix) {
    const std::string_view name = entry.substr(kClassPrefix.size());
    if (FindDestinationClass(name) != nullptr) return std::nullopt;
    std::vector<std::string_view> known;
    for (const DestinationClass& one : BuiltInDestinations()) known.push_back(one.name);
    const std::string_view nearest = Nearest(name, known);
    return "names no class of destinations" +
           (nearest.empty() ? "" : "; did you mean " + Quoted(std::string(kClassPrefix) + std::string(nearest)) + "?");
  }
  const Result<network::Rule> rule = network::ParseAllowRule(entry);
  return rule ? std::nullopt : Fault(rule.error().message);
}

Fault FaultInDenyEntry(std::string_view entry) {
  const Result<network::Rule> rule = network::ParseDenyRule(entry);
  return rule ? std::nullopt : Fault(rule.error().message);
}

Fault FaultInPort(std::string_view port) {
  if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string_view::npos ||
      port[0] == '0' || std::stoul(std::string(port)) > 65535)
    return "is no port from 1 to 65535";
  return std::nullopt;
}

Fault FaultInCredentialName(std::string_view name) {
  return IsWord(name, "._-", 64) ? Fault() : Fault("is not 1 to 64 letters, digits, dots, underscores and hyphens");
}

Fault FaultInPool(std::string_view range) {
  constexpr char kExpected[] = "must be a range of IPv4 addresses with 8 to 28 bits, as 198.18.0.0/15 is";
  constexpr int kIpv4Bits = 96, kMinBits = 8, kMaxBits = 28;  // of 128
  const Result<network::AddressRange> parsed = network::AddressRange::Parse(range);
  if (!parsed || !parsed->prefix.is_ipv4() || parsed->bits < kIpv4Bits + kMinBits ||
      parsed->bits > kIpv4Bits + kMaxBits)
    return kExpected;
  const uint64_t size = uint64_t{1} << (128 - parsed->bits);
  const uint32_t first = parsed->prefix.ipv4();
  if (first % size != 0) return "must begin at the first address of the range";
  const uint32_t top = first >> 24, last = static_cast<uint32_t>(first + size - 1) >> 24;
  if (top == 0 || (top <= 127 && last >= 127) || last >= 224)
    return "must not hold loopback, multicast or reserved addresses";
  return std::nullopt;
}

Fault FaultInAddressRange(std::string_view range) {
  const Result<network::AddressRange> parsed = network::AddressRange::Parse(range);
  return parsed ? std::nullopt : Fault("must be an address or a range of them, as 10.1.0.0/16 is");
}

Fault FaultInHostEntry(std::string_view name, std::string_view address) {
  const Result<network::Host> host = network::Host::Parse(name);
  if (!host) return host.error().message;
  if (host->address || !network::Address::Parse(address)) return "must be a name and its address";
  return std::nullopt;
}

Fault FaultInCallbackUrl(std::string_view url) {
  constexpr size_t kMaxUrlBytes = 2048;
  constexpr char kExpected[] = "must be an http:// or https:// URL";
  if (url.size() > kMaxUrlBytes) return "is longer than " + std::to_string(kMaxUrlBytes) + " bytes";
  if (!std::all_of(url.begin(), url.end(), IsUrlCharacter)) {
    return std::string(kExpected) + " without blanks, fragment or characters that need escaping";
  }
  const size_t scheme = url.substr(0, 7) == "http://" ? 7 : url.substr(0, 8) == "https://" ? 8 : 0;
  if (scheme == 0) return kExpected;
  const std::string_view rest = url.substr(scheme);
  std::string_view host = rest.substr(0, rest.find_first_of("/?"));
  if (host.find('@') != std::string_view::npos) return "must not carry a user name or password";
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && (host[0] != '[' || host[colon - 1] == ']')) {
    if (!IsPort(host.substr(colon + 1))) return "has a bad port";
    host = host.substr(0, colon);
  }
  if (IsBracketedIpv6(host)) return std::nullopt;
  return FaultInHostName(host);
}

Fault FaultInTimestamp(std::string_view text) {
  constexpr char kExpected[] = "must be an RFC 3339 timestamp such as 2030-01-31T12:00:00Z";
  constexpr size_t kWithoutFraction = 19;
  if (text.size() <= kWithoutFraction || (text[10] != 'T' && text[10] != 't')) return kExpected;
  if (!IsDate(text.substr(0, 10)) || !IsTimeOfDay(text.substr(11, 8))) return kExpected;
  std::string_view rest = text.substr(kWithoutFraction);
  if (rest[0] == '.') {
    const size_t end = std::min(rest.find_first_not_of("0123456789", 1), rest.size());
    constexpr size_t kMaxFraction = 9;
    if (end == 1 || end - 1 > kMaxFraction) return kExpected;
    rest.remove_prefix(end);
  }
  if (!IsOffset(rest)) return kExpected;
  return std::nullopt;
}

Fault FaultInUtcTimestamp(std::string_view text) {
  constexpr std::string_view kForm = "2030-01-31T12:00:00.000Z";
  const bool in_form = text.size() == kForm.size() && text[10] == 'T' && text[17] != '6' && text[19] == '.' &&
                       text.back() == 'Z' && !FaultInTimestamp(text);
  if (in_form) return std::nullopt;
  return "must be a time in UTC with milliseconds, such as " + std::string(kForm);
}

int64_t SecondsSinceEpoch(std::string_view timestamp) {
  const int64_t year = TwoDigits(timestamp, 0) * 100 + TwoDigits(timestamp, 2);
  const int64_t month = TwoDigits(timestamp, 5), day = TwoDigits(timestamp, 8);
  // Days since 1970, counting years from March so that a leap day ends one.
  const int64_t y = month <= 2 ? year - 1 : year;
  const int64_t era = (y >= 0 ? y : y - 399) / 400, year_of_era = y - era * 400;
  const int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const int64_t days = era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
  const int64_t hour = TwoDigits(timestamp, 11), minute = TwoDigits(timestamp, 14);
  int64_t seconds = days * 86400 + hour * 3600 + minute * 60 + TwoDigits(timestamp, 17);
  const size_t sign = timestamp.find_first_of("+-", 19);
  if (sign != std::string_view::npos) {
    const int64_t hours = TwoDigits(timestamp, sign + 1), minutes = TwoDigits(timestamp, sign + 4);
    const int64_t offset = hours * 3600 + minutes * 60;
    seconds += timestamp[sign] == '+' ? -offset : offset;
  }
  return seconds;
}

std::optional<std::string> DecodeBase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.empty() ? 0 : text.substr(text.size() - 2) == "==" ? 2 : text.back() == '=' ? 1 : 0;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text.substr(0, text.size() - padding)) {
    const int value = Base64Value(c);
    if (value < 0) return std::nullopt;
    bits = (bits << 6) | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>((bits >> count) & 0xFF);
    }
  }
  const uint32_t spare = bits & ((uint32_t{1} << count) - 1);
  if (spare != 0) return std::nullopt;
  return bytes;
}

}  // namespace caisson::policy
