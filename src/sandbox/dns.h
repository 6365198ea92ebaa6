// The two things we ever do with a DNS query: read the name out of it for the record, and answer that it does not
// exist. The bytes come from the workload and are treated as hostile.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace caisson::sandbox {

struct DnsQuestion {
  std::string name;  // labels joined with dots; bytes that are not letters, digits, '-' or '_' as \NNN
  uint16_t type = 0;
};

// Nothing when the packet is not a query with one well-formed question.
std::optional<DnsQuestion> ParseDnsQuery(std::span<const uint8_t> packet);

// NXDOMAIN for a packet that ParseDnsQuery accepted.
std::vector<uint8_t> MakeNoSuchName(std::span<const uint8_t> query);

}  // namespace caisson::sandbox
