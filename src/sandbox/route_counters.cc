#include "sandbox/route_counters.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "linux/files.h"

namespace caisson::sandbox {

namespace {

std::string ReadAll(int fd) {
  std::string text(16384, '\0');
  const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
  text.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return text;
}

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const size_t space = line.find(' ');
    words.push_back(line.substr(0, space));
    line.remove_prefix(space == std::string_view::npos ? line.size() : space + 1);
  }
  return words;
}

// /proc/net/snmp has one line with the names of the counters and one with their values, both beginning with "Ip:".
std::optional<int64_t> Ipv4Unrouted(std::string_view text) {
  const size_t names_at = text.find("Ip: ");
  const size_t names_end = text.find('\n', names_at);
  if (names_at == std::string_view::npos || names_end == std::string_view::npos) return std::nullopt;
  const size_t values_end = text.find('\n', names_end + 1);
  if (values_end == std::string_view::npos) return std::nullopt;
  const auto names = Words(text.substr(names_at, names_end - names_at));
  const auto values = Words(text.substr(names_end + 1, values_end - names_end - 1));
  for (size_t i = 0; i < names.size() && i < values.size(); ++i) {
    if (names[i] != "OutNoRoutes") continue;
    int64_t value = -1;
    std::from_chars(values[i].data(), values[i].data() + values[i].size(), value);
    return value < 0 ? std::nullopt : std::optional(value);
  }
  return std::nullopt;
}

}  // namespace

bool RouteCounters::Open(pid_t pid) {
  const std::string directory = "/proc/" + std::to_string(pid) + "/net/";
  ipv6_.Reset(::open((directory + "snmp6").c_str(), O_RDONLY | O_CLOEXEC));
  if (!ipv6_ && errno != ENOENT) return false;
  ipv4_.Reset(::open((directory + "snmp").c_str(), O_RDONLY | O_CLOEXEC));
  return ipv4_.valid();
}

std::optional<int64_t> RouteCounters::Read() const {
  const std::optional<int64_t> ipv4 = ipv4_ ? Ipv4Unrouted(ReadAll(ipv4_.get())) : std::nullopt;
  if (!ipv4 || !ipv6_) return ipv4;
  const std::string text = ReadAll(ipv6_.get());
  constexpr std::string_view kName = "Ip6OutNoRoutes";
  const size_t at = text.find(kName);
  const size_t digits = at == std::string::npos ? at : text.find_first_of("0123456789", at + kName.size());
  if (digits == std::string::npos) return std::nullopt;
  int64_t value = 0;
  std::from_chars(text.data() + digits, text.data() + text.size(), value);
  return *ipv4 + value;
}

}  // namespace caisson::sandbox
