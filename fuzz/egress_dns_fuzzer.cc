// DNS packets from the sandbox, and replies from the internet.
#include <string>

#include "base/check.h"
#include "egress/dns.h"
#include "egress/dns_reply.h"
#include "network/name.h"
#include "target.h"

CAISSON_FUZZ_TARGET(egress_dns) {
  using namespace caisson::egress;
  const std::span<const uint8_t> packet(bytes, size);
  DnsQuestion question;
  const PacketKind kind = ParseQuestion(packet, question);
  if (kind == PacketKind::kMalformed) CAISSON_CHECK(MakeFormErr(packet).size() == 12);
  if (kind == PacketKind::kQuestion) {
    CAISSON_CHECK(question.end <= size && question.name.size() <= 4 * 255);
    for (const DnsRecord& record :
         {DnsRecord(), DnsRecord(AddressRecord{1}), DnsRecord(Ipv6Record{}), DnsRecord(NameRecord{"a.example"})}) {
      const std::vector<uint8_t> answer = MakeAnswer(packet, question, Rcode::kNoError, record);
      // At most one record and EDNS after the question, so that it cannot be used as an amplifier.
      CAISSON_CHECK(answer.size() <= question.end + 64 && answer[0] == bytes[0] && (answer[2] & 0x80) != 0);
    }
    if (const auto name = caisson::network::NormalizeName(question.name)) (void)ParseReverseName(*name);
  }
  for (const uint16_t type : {kTypeA, kTypeAaaa}) {
    const uint16_t id = size >= 2 ? static_cast<uint16_t>(bytes[0] << 8 | bytes[1]) : 0;
    const DnsReply reply = ParseReply(packet, id, "a.example", type);
    CAISSON_CHECK(reply.addresses.size() <= kMaxAddresses);
    CAISSON_CHECK(reply.state == DnsReply::State::kAnswered || reply.addresses.empty() ||
                  reply.state == DnsReply::State::kFailed);
  }
  return 0;
}
