#include "egress/http_gate.h"

#include <algorithm>
#include <charconv>

namespace caisson::egress {
namespace {

bool IsTokenChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}
bool IsToken(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenChar); }

bool IsFieldValue(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
  });
}

bool IsTargetChar(char c) { return c > 0x20 && c < 0x7f; }

std::string_view Trim(std::string_view text) {
  const size_t from = text.find_first_not_of(" \t");
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(" \t") - from + 1);
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

bool ParseNumber(std::string_view text, int base, size_t most_digits, uint64_t& number) {
  if (text.empty() || text.size() > most_digits) return false;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

// Removes the first line and its CRLF. Every line of the text must end with CRLF.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = text.find("\r\n");
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 2, text.size()));
  return line;
}

bool SplitField(std::string_view line, std::string& name, std::string_view& value) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon))) return false;
  name = Lower(line.substr(0, colon));
  value = Trim(line.substr(colon + 1));
  return IsFieldValue(value);
}

}  // namespace

HttpGate::Verdict HttpGate::Refuse(size_t forward, int status, const char* reason) {
  state_ = State::kRefused;
  return {forward, status, reason};
}

size_t HttpGate::FindEmptyLine(std::string_view bytes) {
  size_t at = scanned_;
  for (; at < bytes.size(); ++at) {
    const char c = bytes[at];
    if (c == '\n' && (at == 0 || bytes[at - 1] != '\r')) return SIZE_MAX;
    if (at > 0 && bytes[at - 1] == '\r' && c != '\n') return SIZE_MAX;
    if (c == '\n' && (at == 1 || (at >= 3 && bytes[at - 2] == '\n'))) {
      scanned_ = 0;
      return at + 1;
    }
  }
  scanned_ = at;
  return 0;
}

bool HttpGate::IsOwnAuthority(std::string_view text) const {
  const size_t bracket = text.rfind(']');
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    if (text.substr(colon + 1) != std::to_string(port_)) return false;
    text = text.substr(0, colon);
  }
  const Result<network::Host> host = network::Host::Parse(text);
  return host && *host == host_;
}

bool HttpGate::JudgeRequestLine(std::string_view line, Verdict& verdict) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  verdict = {0, 400, "malformed_request"};
  if (first == std::string_view::npos || first == last) return false;
  const std::string_view method = line.substr(0, first), target = line.substr(first + 1, last - first - 1),
                         version = line.substr(last + 1);
  if (!IsToken(method) || target.empty() || !std::all_of(target.begin(), target.end(), IsTargetChar)) return false;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return false;
  old_version_ = version == "HTTP/1.0";
  is_get_ = method == "GET";
  if (method == "CONNECT") {
    verdict = {0, 403, "connect_method"};
    return false;
  }
  if (target[0] == '/' || (target == "*" && method == "OPTIONS")) return true;
  constexpr std::string_view kScheme = "http://";
  if (Lower(target.substr(0, kScheme.size())) != kScheme) return false;
  const std::string_view rest = target.substr(kScheme.size());
  if (IsOwnAuthority(rest.substr(0, rest.find_first_of("/?")))) return true;
  verdict.reason = "target_mismatch";
  return false;
}

bool HttpGate::JudgeField(std::string_view line, Fields& fields, Verdict& verdict) {
  std::string name;
  std::string_view value;
  verdict = {0, 400, "malformed_request"};
  if (!SplitField(line, name, value)) return false;
  if (name == "host") {
    if (fields.host) return false;
    fields.host = true;
    if (IsOwnAuthority(value)) return true;
    verdict = {0, 403, "host_mismatch"};
    return false;
  }
  if (name == "content-length") {
    if (fields.length || fields.chunked) return false;
    fields.length = true;
    return ParseNumber(value, 10, 18, fields.body);
  }
  if (name == "transfer-encoding") {
    if (fields.length || fields.chunked || old_version_) return false;
    fields.chunked = true;
    return Lower(value) == "chunked";
  }
  if (name == "upgrade") fields.upgrade = Lower(value) == "websocket";
  if (name == "connection") {
    std::string_view list = value;
    while (!list.empty()) {
      const size_t comma = std::min(list.find(','), list.size());
      if (Lower(Trim(list.substr(0, comma))) == "upgrade") fields.connection_upgrade = true;
      list.remove_prefix(std::min(comma + 1, list.size()));
    }
  }
  return true;
}

bool HttpGate::JudgeHead(std::string_view head, Verdict& verdict) {
  if (!JudgeRequestLine(TakeLine(head), verdict)) return false;
  Fields fields;
  for (std::string_view line = TakeLine(head); !line.empty(); line = TakeLine(head))
    if (!JudgeField(line, fields, verdict)) return false;
  verdict = {0, 400, "host_missing"};
  if (!fields.host) return false;
  left_ = fields.body;
  if (fields.upgrade && fields.connection_upgrade) {
    // Only while no answer is outstanding do the server's first bytes certainly belong to this request.
    verdict = {0, 400, "late_upgrade"};
    if (!first_ || !is_get_ || fields.chunked || left_ > 0) return false;
    state_ = State::kUpgrade;
  } else {
    state_ = fields.chunked ? State::kChunkSize : left_ > 0 ? State::kBody : State::kHead;
  }
  first_ = false;
  return true;
}

// Takes one step inside a body. Returns false when more bytes are needed or the verdict refuses.
bool HttpGate::StepBody(std::string_view rest, Verdict& verdict) {
  if (state_ == State::kBody || state_ == State::kChunkData) {
    const auto part = static_cast<size_t>(std::min<uint64_t>(left_, rest.size()));
    left_ -= part;
    verdict.forward += part;
    if (left_ > 0) return false;
    state_ = state_ == State::kBody ? State::kHead : State::kChunkEnd;
    return true;
  }
  if (state_ == State::kChunkEnd) {
    if (rest.size() >= 1 && rest[0] != '\r') verdict = Refuse(verdict.forward, 400, "malformed_chunk");
    if (rest.size() < 2 || verdict.status != 0) return false;
    if (rest[1] != '\n') {
      verdict = Refuse(verdict.forward, 400, "malformed_chunk");
      return false;
    }
    verdict.forward += 2;
    state_ = State::kChunkSize;
    return true;
  }
  // A chunk's size: hexadecimal digits and CRLF.
  constexpr size_t kMaxDigits = 15;
  const size_t end = rest.find('\n');
  if (end == std::string_view::npos) {
    if (rest.size() > kMaxDigits + 1) verdict = Refuse(verdict.forward, 400, "malformed_chunk");
    return false;
  }
  if (end == 0 || rest[end - 1] != '\r' || !ParseNumber(rest.substr(0, end - 1), 16, kMaxDigits, left_)) {
    verdict = Refuse(verdict.forward, 400, "malformed_chunk");
    return false;
  }
  verdict.forward += end + 1;
  state_ = left_ == 0 ? State::kTrailer : State::kChunkData;
  return true;
}

HttpGate::Verdict HttpGate::Judge(std::string_view bytes) {
  Verdict verdict;
  for (;;) {
    bool is_head = false;
    const Verdict part = JudgePart(bytes.substr(verdict.forward), is_head);
    verdict.forward += part.forward;
    if (part.status != 0) return {verdict.forward, part.status, part.reason};
    if (part.forward == 0) return verdict;
  }
}

HttpGate::Verdict HttpGate::JudgePart(std::string_view bytes, bool& is_head) {
  is_head = false;
  Verdict verdict;
  if (state_ == State::kOpaque) return {bytes.size(), 0, ""};
  if (state_ == State::kRefused) return Refuse(0, 400, "malformed_request");
  if (state_ == State::kUpgrade || bytes.empty()) return verdict;
  if (state_ != State::kHead && state_ != State::kTrailer) {
    StepBody(bytes, verdict);
    return verdict;
  }
  const bool head = state_ == State::kHead;
  const size_t size = FindEmptyLine(bytes);
  if (size == SIZE_MAX) return Refuse(0, 400, "malformed_request");
  const size_t most = head ? kMaxHttpHead : kMaxHttpTrailer;
  if (size > most || (size == 0 && bytes.size() > most)) return Refuse(0, 431, "oversized_head");
  if (size == 0) return verdict;
  if (head) {
    Verdict fault;
    if (!JudgeHead(bytes.substr(0, size), fault)) return Refuse(0, fault.status, fault.reason);
    if (is_forbidden_ && is_forbidden_(bytes.substr(0, size))) return Refuse(0, 403, "placeholder_misplaced");
  } else {
    std::string_view lines = bytes.substr(0, size);
    for (std::string_view line = TakeLine(lines); !line.empty(); line = TakeLine(lines)) {
      std::string name;
      std::string_view value;
      if (!SplitField(line, name, value) || name == "host" || name == "content-length" || name == "transfer-encoding")
        return Refuse(0, 400, "malformed_trailer");
    }
    state_ = State::kHead;
  }
  is_head = head;
  verdict.forward = size;
  return verdict;
}

std::string HttpRefusal(int status, std::string_view reason) {
  const char* phrase = status == 403   ? "Forbidden"
                       : status == 405 ? "Method Not Allowed"
                       : status == 408 ? "Request Timeout"
                       : status == 431 ? "Request Header Fields Too Large"
                       : status == 502 ? "Bad Gateway"
                                       : "Bad Request";
  const std::string body = "caisson: " + std::string(reason) + "\n";
  return "HTTP/1.1 " + std::to_string(status) + " " + phrase +
         "\r\nContent-Type: text/plain\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\n\r\n" + body;
}

}  // namespace caisson::egress
