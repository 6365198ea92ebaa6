#include "egress/credentials.h"

#include <algorithm>

namespace caisson::egress {

namespace {

constexpr std::string_view kSecretMark = "{secret}";

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

bool StartsWith(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// Returns false where a percent sign is not followed by two hexadecimal digits.
bool PercentDecode(std::string_view text, std::string& decoded) {
  decoded.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = HexDigit(text[i + 1]), low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0) return false;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return true;
}

// Whether servers may take the path for another one: what looks like a path below /repos/ must not be one above it.
bool IsAmbiguous(std::string_view encoded, std::string_view decoded) {
  if (decoded.find_first_of(std::string_view("\\\0\r\n", 4)) != std::string_view::npos) return true;
  if (decoded.find("//") != std::string_view::npos) return true;
  // An encoded slash separates components for some servers and not for others.
  if (std::count(encoded.begin(), encoded.end(), '/') != std::count(decoded.begin(), decoded.end(), '/')) return true;
  for (size_t at = decoded.find('/'); at != std::string_view::npos; at = decoded.find('/', at + 1)) {
    const std::string_view component = decoded.substr(at + 1, decoded.find('/', at + 1) - at - 1);
    // "..;" is ".." for servers that take a semicolon for the beginning of parameters.
    const std::string_view name = component.substr(0, component.find(';'));
    if (name == "." || name == "..") return true;
  }
  return false;
}

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

bool Base64Decode(std::string_view text, std::string& decoded) {
  decoded.clear();
  uint32_t bits = 0;
  int count = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char c : text) {
    const size_t value = kBase64.find(c);
    if (value == std::string_view::npos) return false;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      decoded += static_cast<char>(bits >> count & 0xff);
    }
  }
  return true;
}

std::string Base64Encode(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t size = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) bits = bits << 8 | (j < size ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (size_t j = 0; j < 4; ++j) text += j <= size ? kBase64[bits >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

void ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

std::string_view TakeLine(std::string_view& text) {
  const size_t end = text.find("\r\n");
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 2, text.size()));
  return line;
}

// What follows "Basic" in a value, which programs encode; empty when the value is something else.
std::string_view BasicPart(std::string_view value) {
  constexpr std::string_view kBasic = "basic ";
  if (Lower(value.substr(0, kBasic.size())) != kBasic) return {};
  value.remove_prefix(kBasic.size());
  while (!value.empty() && value[0] == ' ') value.remove_prefix(1);
  while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
  return value;
}

template <typename List>
bool Lists(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace

Result<std::string> CleanSecret(std::string_view bytes) {
  while (!bytes.empty() && (bytes.back() == '\n' || bytes.back() == '\r')) bytes.remove_suffix(1);
  if (bytes.empty()) return Error::Invalid("the secret is empty");
  const bool fits = std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  if (!fits) return Error::Invalid("the secret has bytes that no header can have");
  return std::string(bytes);
}

// The request line of a head, taken apart.
struct Credentials::Request {
  std::string_view method, target;
  std::string path, decoded_target;  // decoded
  bool ambiguous = false;
};

bool Credentials::Binds(std::string_view host, uint16_t port) const {
  return std::any_of(secrets_.begin(), secrets_.end(),
                     [&](const BoundSecret& one) { return one.host == host && one.port == port; });
}

const BoundSecret* Credentials::FindMentioned(std::string_view text) const {
  const auto found = std::find_if(secrets_.begin(), secrets_.end(), [&](const BoundSecret& one) {
    return text.find(one.placeholder) != std::string_view::npos;
  });
  return found == secrets_.end() ? nullptr : &*found;
}

bool Credentials::IsMentioned(std::string_view head) const {
  if (secrets_.empty()) return false;
  for (std::string_view line = TakeLine(head); !line.empty(); line = TakeLine(head)) {
    if (FindMentioned(line) != nullptr) return true;
    std::string decoded;
    if (PercentDecode(line, decoded) && FindMentioned(decoded) != nullptr) return true;
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && value[0] == ' ') value.remove_prefix(1);
    if (Base64Decode(BasicPart(value), decoded) && FindMentioned(decoded) != nullptr) return true;
  }
  return false;
}

// The rule of this credential that the request breaks; nullptr when there is none.
const char* Credentials::RefusalOf(const BoundSecret& secret, const Request& request) const {
  if (request.method == "TRACE") return "method_not_allowed";  // its answer would hold the secret
  if (!secret.methods.empty() && !Lists(secret.methods, request.method)) return "method_not_allowed";
  const auto is_below = [&](const std::string& prefix) { return StartsWith(request.path, prefix); };
  if (!secret.paths.empty() && std::none_of(secret.paths.begin(), secret.paths.end(), is_below))
    return "path_not_allowed";
  if (secret.git_read_only && request.decoded_target.find("git-receive-pack") != std::string::npos) return "git_write";
  return nullptr;
}

bool Credentials::EditLine(std::string_view host, uint16_t port, const Request& request, std::string& line,
                           Edited& edited) const {
  const size_t colon = line.find(':');
  const std::string name = Lower(std::string_view(line).substr(0, colon));
  size_t start = colon == std::string::npos ? line.size() : colon + 1;
  while (start < line.size() && (line[start] == ' ' || line[start] == '\t')) ++start;
  const std::string_view basic = BasicPart(std::string_view(line).substr(start));
  std::string plain;
  const bool is_basic = !basic.empty() && Base64Decode(basic, plain) && FindMentioned(plain) != nullptr;
  const BoundSecret* secret = FindMentioned(is_basic ? std::string_view(plain) : std::string_view(line));
  if (secret == nullptr) return true;
  const bool fits = secret->host == host && secret->port == port && name == secret->header &&
                    StartsWith(request.path, secret->path) && RefusalOf(*secret, request) == nullptr;
  if (!fits) return false;
  if (is_basic) {
    ReplaceAll(plain, secret->placeholder, secret->secret);
    line = line.substr(0, start) + "Basic " + Base64Encode(plain);
  } else {
    std::string value = line.substr(start);
    ReplaceAll(value, secret->placeholder, secret->secret);
    line = line.substr(0, start) + value;
  }
  edited.used = secret->name;
  // A second placeholder in the same line belongs to another credential.
  return FindMentioned(is_basic ? plain : line) == nullptr;
}

Credentials::Edited Credentials::Edit(std::string_view host, uint16_t port, std::string_view head) const {
  Edited edited;
  const auto refuse = [&edited](int status, const char* reason) {
    edited = {status, reason, "", ""};
    return edited;
  };
  std::string_view rest = head;
  const std::string_view first = TakeLine(rest);
  Request request;
  request.method = first.substr(0, first.find(' '));
  request.target = first.substr(std::min(first.size(), request.method.size() + 1));
  request.target = request.target.substr(0, request.target.rfind(' '));
  if (request.target.empty() || (request.target[0] != '/' && request.target != "*"))
    return refuse(400, "target_mismatch");
  const std::string_view path = request.target.substr(0, request.target.find('?'));
  if (!PercentDecode(path, request.path) || !PercentDecode(request.target, request.decoded_target))
    return refuse(400, "ambiguous_path");
  if (IsAmbiguous(path, request.path)) return refuse(400, "ambiguous_path");
  if (FindMentioned(request.target) != nullptr || FindMentioned(request.decoded_target) != nullptr)
    return refuse(403, "placeholder_misplaced");

  // A request may be made when one of the host's credentials permits it.
  const char* refusal = nullptr;
  bool permitted = false;
  const BoundSecret* adding = nullptr;
  for (const BoundSecret& one : secrets_) {
    if (one.host != host || one.port != port) continue;
    if (const char* reason = RefusalOf(one, request)) {
      refusal = reason;
      continue;
    }
    permitted = true;
    if (!one.value.empty() && StartsWith(request.path, one.path) &&
        (adding == nullptr || one.path.size() > adding->path.size()))
      adding = &one;
  }
  if (!permitted) return refuse(403, refusal != nullptr ? refusal : "not_listed");

  edited.head = std::string(first) + "\r\n";
  for (std::string_view given = TakeLine(rest); !given.empty(); given = TakeLine(rest)) {
    std::string line(given);
    if (!EditLine(host, port, request, line, edited)) return refuse(403, "placeholder_misplaced");
    if (adding != nullptr && Lower(given.substr(0, given.find(':'))) == adding->header) adding = nullptr;
    edited.head += line + "\r\n";
  }
  if (adding != nullptr) {
    std::string value = adding->value;
    ReplaceAll(value, kSecretMark, adding->secret);
    edited.head += adding->header + ": " + value + "\r\n";
    edited.used = adding->name;
  }
  edited.head += "\r\n";
  return edited;
}

}  // namespace caisson::egress
