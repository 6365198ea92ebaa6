#include "client/resolver.h"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <resolv.h>

#include <cstring>
#include <sstream>

#include "base/words.h"
#include "linux/files.h"
#include "policy/syntax.h"

namespace caisson::client {

namespace {

constexpr size_t kMaxAddresses = 16;

Address MakeAddress(int family, const void* bytes, int port) {
  Address address;
  if (family == AF_INET) {
    auto* four = reinterpret_cast<sockaddr_in*>(&address.storage);
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<uint16_t>(port));
    std::memcpy(&four->sin_addr, bytes, sizeof(four->sin_addr));
    address.size = sizeof(*four);
  } else {
    auto* six = reinterpret_cast<sockaddr_in6*>(&address.storage);
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<uint16_t>(port));
    std::memcpy(&six->sin6_addr, bytes, sizeof(six->sin6_addr));
    address.size = sizeof(*six);
  }
  return address;
}

bool AddNumeric(const std::string& text, int port, std::vector<Address>& addresses) {
  unsigned char bytes[sizeof(in6_addr)];
  for (const int family : {AF_INET, AF_INET6}) {
    if (::inet_pton(family, text.c_str(), bytes) != 1) continue;
    addresses.push_back(MakeAddress(family, bytes, port));
    return true;
  }
  return false;
}

void AddFromHosts(const std::string& host, int port, std::vector<Address>& addresses) {
  const Result<std::string> text = linux_sys::ReadSmallFile(AT_FDCWD, "/etc/hosts");
  if (!text) return;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string number;
    words >> number;
    for (std::string name; words >> name;)
      if (policy::ToLowerAscii(name) == host) AddNumeric(number, port, addresses);
  }
}

void AddFromDns(const std::string& host, ns_type type, int port, std::vector<Address>& addresses) {
  unsigned char answer[8192];
  const int size = ::res_search(host.c_str(), ns_c_in, type, answer, sizeof(answer));
  ns_msg message{};
  if (size <= 0 || size > static_cast<int>(sizeof(answer)) || ::ns_initparse(answer, size, &message) != 0) return;
  for (int i = 0; i < ns_msg_count(message, ns_s_an) && addresses.size() < kMaxAddresses; ++i) {
    ns_rr record{};
    if (::ns_parserr(&message, ns_s_an, i, &record) != 0 || ns_rr_type(record) != type) continue;
    const size_t expected = type == ns_t_a ? sizeof(in_addr) : sizeof(in6_addr);
    if (ns_rr_rdlen(record) != expected) continue;
    addresses.push_back(MakeAddress(type == ns_t_a ? AF_INET : AF_INET6, ns_rr_rdata(record), port));
  }
}

}  // namespace

Result<std::vector<Address>> Resolve(const std::string& name, int port) {
  std::vector<Address> addresses;
  const std::string host = policy::ToLowerAscii(name);
  if (AddNumeric(host == "localhost" ? "127.0.0.1" : host, port, addresses)) {
    if (host == "localhost") AddNumeric("::1", port, addresses);
    return addresses;
  }
  AddFromHosts(host, port, addresses);
  if (!addresses.empty()) return addresses;
  AddFromDns(host, ns_t_a, port, addresses);
  AddFromDns(host, ns_t_aaaa, port, addresses);
  if (addresses.empty()) return Error::NotFound(Quoted(name) + " has no address");
  return addresses;
}

}  // namespace caisson::client
