// Handles a DNS query. A query about the sandbox itself (its own name, localhost, the addresses of the loopback) is
// answered, because that reaches no other machine. From any other query the name is read for the record, and the answer
// is that it does not exist. The bytes come from the workload and are treated as hostile.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/violation.h"

namespace caisson::sandbox {

struct DnsQuestion {
  std::string name;  // labels joined with dots; bytes that are not letters, digits, '-' or '_' as \NNN
  uint16_t type = 0;
};

// Absent when the packet is not a query with one well-formed question.
std::optional<DnsQuestion> ParseDnsQuery(std::span<const uint8_t> packet);

// Answers a query about the sandbox itself, whose name is `hostname`; absent for any other query. Follows RFC 6761:
// every name below localhost is the loopback, in both families, and the loopback addresses have the name localhost.
// These names have no records of other types.
std::optional<std::vector<uint8_t>> AnswerLocally(std::span<const uint8_t> query, std::string_view hostname);

// Makes the NXDOMAIN answer for a packet that ParseDnsQuery accepted.
std::vector<uint8_t> MakeNoSuchName(std::span<const uint8_t> query);

// The answer to a query that AnswerLocally does not answer, and the violation that the query is. The answer to a packet
// that is no query is empty.
struct RefusedLookUp {
  Violation violation;
  std::vector<uint8_t> answer;
};
RefusedLookUp RefuseLookUp(std::span<const uint8_t> query);

}  // namespace caisson::sandbox
