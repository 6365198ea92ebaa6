// The parsers of hostile bytes: DNS questions and replies, ClientHello, HTTP, CONNECT and SOCKS.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "egress/client_hello.h"
#include "egress/dns.h"
#include "egress/dns_reply.h"
#include "egress/http_gate.h"
#include "egress/proxy_request.h"

namespace caisson::egress {
namespace {

using namespace std::string_literals;
using Bytes = std::vector<uint8_t>;

std::string WireName(std::string_view name) {
  std::string wire;
  while (!name.empty()) {
    const size_t dot = std::min(name.find('.'), name.size());
    wire += static_cast<char>(dot) + std::string(name.substr(0, dot));
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  return wire + '\0';
}

Bytes Packet(const std::string& text) { return {text.begin(), text.end()}; }

std::string Question(std::string_view name, uint8_t type) {
  return "\x12\x34\x01\0\0\1\0\0\0\0\0\0"s + WireName(name) + "\0"s + static_cast<char>(type) + "\0\1"s;
}

TEST(Dns, AnswersWhatWasAsked) {
  const Bytes packet = Packet(Question("Api.example", 1));
  DnsQuestion question;
  ASSERT_EQ(ParseQuestion(packet, question), PacketKind::kQuestion);
  EXPECT_EQ(question.name, "Api.example");
  const Bytes answer = MakeAnswer(packet, question, Rcode::kNoError, AddressRecord{0xC6120002});
  EXPECT_EQ(answer[0], 0x12);
  EXPECT_EQ(answer[3] & 15, 0);
  EXPECT_EQ(Bytes(answer.end() - 4, answer.end()), (Bytes{198, 18, 0, 2}));
  const DnsReply reply = ParseReply(answer, 0x1234, "api.example", kTypeA);
  ASSERT_EQ(reply.state, DnsReply::State::kAnswered);
  EXPECT_EQ(reply.addresses.at(0).Text(), "198.18.0.2");
  EXPECT_EQ(reply.ttl, 30U);
  const Bytes none = MakeAnswer(packet, question, Rcode::kNxDomain);
  EXPECT_EQ(none[3] & 15, 3);
  EXPECT_EQ(none.size(), packet.size());
}

TEST(Dns, BytesThatAreNoLettersAreEscaped) {
  DnsQuestion question;
  const Bytes packet = Packet("\0\1\1\0\0\1\0\0\0\0\0\0\3a.b\1\n\0\0\1\0\1"s);
  ASSERT_EQ(ParseQuestion(packet, question), PacketKind::kQuestion);
  EXPECT_EQ(question.name, "a\\046b.\\010");
}

TEST(Dns, EdnsVersionsAreNegotiated) {
  std::string text = Question("a.example", 1);
  text[11] = 1;
  for (const char version : {'\0', '\1'}) {
    const Bytes packet = Packet(text + "\0\0\x29\4\xd0\0"s + version + "\0\0\0\0"s);
    DnsQuestion question;
    ASSERT_EQ(ParseQuestion(packet, question), PacketKind::kQuestion);
    const Bytes answer = MakeAnswer(packet, question, Rcode::kNoError, AddressRecord{1});
    EXPECT_EQ(answer[7], version == 0 ? 1 : 0);
    EXPECT_EQ(answer[answer.size() - 6], version);
  }
}

TEST(Dns, ReverseNames) {
  EXPECT_EQ(ParseReverseName("2.0.18.198.in-addr.arpa")->Text(), "198.18.0.2");
  EXPECT_EQ(ParseReverseName("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa")->Text(),
            "::1");
  for (const char* name :
       {"0.18.198.in-addr.arpa", "a.b.c.d.in-addr.arpa", "1.2.3.4.arpa", "arpa", "01.2.3.4.in-addr.arpa"})
    EXPECT_FALSE(ParseReverseName(name)) << name;
}

std::string Record(const std::string& owner, uint8_t type, const std::string& data) {
  return owner + "\0"s + static_cast<char>(type) + "\0\1\0\0\0\x3c\0"s + static_cast<char>(data.size()) + data;
}

std::string Reply(std::string_view name, uint8_t type, const std::vector<std::string>& records, char rcode = 0) {
  std::string text = Question(name, type);
  text[2] = '\x81';
  text[3] = static_cast<char>(0x80 | rcode);
  text[7] = static_cast<char>(records.size());
  for (const std::string& record : records) text += record;
  return text;
}

TEST(DnsReply, FollowsAliases) {
  const std::string text = Reply(
      "a.example", 1,
      {Record(WireName("c.example"), 1, "\1\2\3\4"), Record("\xc0\x0c", 5, WireName("b.example")),
       Record(WireName("B.example"), 5, WireName("c.example")), Record(WireName("other.example"), 1, "\5\6\7\x08")});
  const DnsReply reply = ParseReply(Packet(text), 0x1234, "a.example", kTypeA);
  ASSERT_EQ(reply.state, DnsReply::State::kAnswered);
  ASSERT_EQ(reply.addresses.size(), 1U);
  EXPECT_EQ(reply.addresses[0].Text(), "1.2.3.4");
  EXPECT_EQ(reply.ttl, 60U);
}

TEST(DnsReply, BelievesOnlyItsAnswer) {
  const std::string good = Reply("a.example", 1, {Record("\xc0\x0c", 1, "\1\2\3\4")});
  EXPECT_EQ(ParseReply(Packet(good), 0x1234, "a.example", kTypeA).addresses.size(), 1U);
  EXPECT_EQ(ParseReply(Packet(good), 0x1235, "a.example", kTypeA).state, DnsReply::State::kUnrelated);
  EXPECT_EQ(ParseReply(Packet(good), 0x1234, "b.example", kTypeA).state, DnsReply::State::kUnrelated);
  EXPECT_EQ(ParseReply(Packet(good), 0x1234, "a.example", kTypeAaaa).state, DnsReply::State::kUnrelated);
  EXPECT_EQ(ParseReply(Packet(Question("a.example", 1)), 0x1234, "a.example", kTypeA).state,
            DnsReply::State::kUnrelated);
  EXPECT_EQ(ParseReply(Packet(Reply("a.example", 1, {}, 2)), 0x1234, "a.example", kTypeA).state,
            DnsReply::State::kFailed);
  EXPECT_EQ(ParseReply(Packet(Reply("a.example", 1, {}, 3)), 0x1234, "a.example", kTypeA).state,
            DnsReply::State::kAnswered);
  for (size_t size = good.size() - 1; size > 30; --size)
    EXPECT_NE(ParseReply(Packet(good.substr(0, size)), 0x1234, "a.example", kTypeA).state, DnsReply::State::kAnswered);
  // A pointer to itself, and aliases in a circle.
  EXPECT_EQ(
      ParseReply(Packet(Reply("a.example", 1, {Record("\xc0\x1b", 1, "\1\2\3\4")})), 0x1234, "a.example", kTypeA).state,
      DnsReply::State::kFailed);
  EXPECT_TRUE(
      ParseReply(Packet(Reply("a.example", 1, {Record("\xc0\x0c", 5, "\xc0\x0c")})), 0x1234, "a.example", kTypeA)
          .addresses.empty());
}

TEST(DnsReply, QueriesAreQuestions) {
  const Bytes query = MakeQuery(0xabcd, "a.example", kTypeAaaa);
  DnsQuestion question;
  ASSERT_EQ(ParseQuestion(query, question), PacketKind::kQuestion);
  EXPECT_EQ(question.name, "a.example");
  EXPECT_EQ(question.type, kTypeAaaa);
  EXPECT_TRUE(question.has_edns);
}

std::string Number(size_t value, int width) {
  std::string text;
  for (int i = width - 1; i >= 0; --i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

std::string ServerName(const std::string& name) {
  const std::string list = "\0"s + Number(name.size(), 2) + name;
  const std::string body = Number(list.size(), 2) + list;
  return Number(0, 2) + Number(body.size(), 2) + body;
}

std::string Hello(const std::string& extensions) {
  const std::string body =
      "\3\3"s + std::string(32, 'r') + "\0\0\2\x13\1\1\0"s + Number(extensions.size(), 2) + extensions;
  return "\1"s + Number(body.size(), 3) + body;
}

std::string Records(const std::string& message, size_t size) {
  std::string text;
  for (size_t at = 0; at < message.size(); at += size) {
    const std::string part = message.substr(at, size);
    text += "\x16\3\1"s + Number(part.size(), 2) + part;
  }
  return text;
}

ClientHello Look(const std::string& text) {
  return ParseClientHello({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

TEST(ClientHello, FindsTheName) {
  const std::string message = Hello("\0\x0b\0\2\1\0"s + ServerName("Web.Example"));
  for (const size_t size : {size_t{1}, size_t{3}, size_t{100}, size_t{16384}}) {
    const std::string text = Records(message, size);
    const ClientHello hello = Look(text);
    EXPECT_EQ(hello.state, ClientHello::State::kWhole) << size;
    EXPECT_EQ(hello.name, "web.example");
    for (size_t cut = 0; cut < text.size(); ++cut)
      EXPECT_EQ(Look(text.substr(0, cut)).state, ClientHello::State::kMore) << size << " " << cut;
    EXPECT_EQ(Look(text + "\x14\3\3\0\1\1"s).state, ClientHello::State::kWhole) << "what follows is not looked at";
  }
}

TEST(ClientHello, RefusesTheRest) {
  using State = ClientHello::State;
  EXPECT_EQ(Look(Records(Hello(""), 16000)).state, State::kNoName);
  EXPECT_EQ(Look(Records(Hello("\0\x0b\0\2\1\0"s), 16000)).state, State::kNoName);
  EXPECT_EQ(Look(Records(Hello(ServerName("a.example") + ServerName("a.example")), 16000)).state, State::kBadName);
  EXPECT_EQ(Look(Records(Hello(ServerName("a\0b"s)), 16000)).state, State::kBadName);
  EXPECT_EQ(Look(Records(Hello(ServerName("")), 16000)).state, State::kBadName);
  EXPECT_EQ(Look(Records(Hello(ServerName(std::string(254, 'a'))), 16000)).state, State::kBadName);
  EXPECT_EQ(Look("GET / HTTP/1.1\r\n\r\n").state, State::kNotTls);
  EXPECT_EQ(Look("\x80\x2e\1\3\1").state, State::kNotTls);
  EXPECT_EQ(Look("\x16\3\1\0\0"s).state, State::kNotTls);
  EXPECT_EQ(Look(Records("\2\0\0\4abcd"s, 100)).state, State::kNotTls);
  EXPECT_EQ(Look(Records(Hello(ServerName("a.example")) + "x", 16000)).state, State::kNotTls);
  EXPECT_EQ(Look(Records("\1\0\x40\0"s, 100)).state, State::kOversized);
  EXPECT_EQ(Look(Records(Hello(ServerName("a.example")), 1) + std::string(20000, 'x')).state, State::kWhole);
  EXPECT_EQ(Look(Records(Hello("\0\x33\x30\0"s + std::string(0x3000, 'k')), 1)).state, State::kOversized);
}

HttpGate Gate(uint16_t port = 80) { return {*network::Host::Parse("web.example"), port}; }

constexpr std::string_view kGood = "GET / HTTP/1.1\r\nHost: web.example\r\n\r\n";

std::span<const uint8_t> Span(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

const std::string kRetryRandom =
    "\xCF\x21\xAD\x74\xE5\x9A\x61\x11\xBE\x1D\x8C\x02\x1E\x65\xB8\x91"
    "\xC2\xA2\x11\x16\x7A\xBB\x8C\x5E\x07\x9E\x09\xE2\xC8\xA8\x33\x9C"s;

std::string ServerHello(const std::string& random) {
  const std::string body = "\3\3"s + random + "\0\x13\1\0\0\0"s;
  return Records("\2"s + Number(body.size(), 3) + body, 16384);
}

TEST(SecondHello, MustNameTheSameServer) {
  const std::string first = Records(Hello(ServerName("web.example")), 16384);
  const std::string early = "\x14\3\3\0\1\1\x17\3\3\0\4data"s;
  for (const char* name : {"web.example", "evil.example"}) {
    for (const size_t size : {size_t{1}, size_t{100}, size_t{16384}}) {
      const bool same = std::string_view(name) == "web.example";
      const std::string second = Records(Hello(ServerName(name)), size), rest = "\x17\3\3\0\1x";
      SecondHello watch("web.example", first.size());
      EXPECT_EQ(watch.Judge(Span(first + early + second + rest)).forward, first.size() + early.size());
      EXPECT_FALSE(watch.ReadAnswer(Span(ServerHello(kRetryRandom).substr(0, 20))));
      EXPECT_TRUE(watch.ReadAnswer(Span(ServerHello(kRetryRandom))));
      EXPECT_FALSE(watch.is_over());
      for (size_t cut = 1; cut < second.size(); ++cut) {
        const SecondHello::Verdict verdict = watch.Judge(Span(second.substr(0, cut)));
        EXPECT_EQ(verdict.forward, 0U);
        EXPECT_EQ(verdict.state, ClientHello::State::kMore);
      }
      const SecondHello::Verdict verdict = watch.Judge(Span(second + rest));
      EXPECT_EQ(verdict.mismatch, !same);
      EXPECT_EQ(verdict.forward, same ? second.size() + rest.size() : 0);
      EXPECT_EQ(watch.is_over(), same);
    }
  }
}

TEST(SecondHello, IsOverWhenTheServerAsksForNone) {
  const std::string first = Records(Hello(ServerName("web.example")), 16384);
  for (const std::string& answer : {ServerHello(std::string(32, 'r')), "\x15\3\3\0\2\2\x28"s, "HTTP/1.1 400 Bad"s}) {
    SecondHello watch("web.example", first.size());
    EXPECT_TRUE(watch.ReadAnswer(Span(answer)));
    EXPECT_TRUE(watch.is_over());
    EXPECT_EQ(watch.Judge(Span(first + "anything")).forward, first.size() + 8);
  }
  SecondHello fragment("web.example", first.size());
  EXPECT_TRUE(fragment.ReadAnswer(Span("\x16\3\3\0\1\2"s)));
  EXPECT_FALSE(fragment.is_over()) << "it could be either";
  SecondHello other("web.example", first.size());
  EXPECT_EQ(other.Judge(Span(first + "GET /")).state, ClientHello::State::kNotTls);
}

TEST(HttpGate, ForwardsWholeRequests) {
  HttpGate gate = Gate();
  const std::string two =
      std::string(kGood) + "POST /x HTTP/1.1\r\nhost: WEB.example.:80\r\nContent-Length: 4\r\n\r\nGET ";
  const HttpGate::Verdict verdict = gate.Judge(two + "GET / HTTP/1.1\r\n");
  EXPECT_EQ(verdict.status, 0);
  EXPECT_EQ(verdict.forward, two.size());
  EXPECT_EQ(gate.Judge("GET / HTTP/1.1\r\nHost: web.example\r\n").forward, 0U);
  EXPECT_EQ(gate.Judge(kGood).forward, kGood.size());
}

TEST(HttpGate, ByteByByteIsTheSame) {
  const std::string text = std::string(kGood) +
                           "PUT / HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\n"
                           "a\r\n0123456789\r\n00F\r\n0123456789abcde\r\n0\r\nX-Trailer: 1\r\n\r\n" +
                           std::string(kGood);
  HttpGate gate = Gate();
  std::string held;
  size_t forwarded = 0;
  for (const char c : text) {
    held.push_back(c);
    const HttpGate::Verdict verdict = gate.Judge(held);
    ASSERT_EQ(verdict.status, 0) << held;
    forwarded += verdict.forward;
    held.erase(0, verdict.forward);
  }
  EXPECT_EQ(forwarded, text.size());
  EXPECT_TRUE(gate.at_rest());
}

TEST(HttpGate, JudgesEveryRequest) {
  const std::string bad = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
  HttpGate gate = Gate();
  const HttpGate::Verdict verdict = gate.Judge(std::string(kGood) + bad);
  EXPECT_EQ(verdict.forward, kGood.size());
  EXPECT_EQ(verdict.status, 403);
  EXPECT_NE(gate.Judge(kGood).status, 0) << "a refused connection stays refused";
  for (const char* host :
       {"web.example:81", "web.example.evil", "evilweb.example", "", "web.example@evil", "127.0.0.1", "a,web.example"})
    EXPECT_EQ(Gate().Judge("GET / HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n").status, 403) << host;
  EXPECT_EQ(Gate(8080).Judge("GET / HTTP/1.1\r\nHost: web.example:8080\r\n\r\n").status, 0);
  EXPECT_EQ(Gate().Judge("GET http://web.example/x HTTP/1.1\r\nHost: web.example\r\n\r\n").status, 0);
  EXPECT_EQ(Gate().Judge("OPTIONS * HTTP/1.1\r\nHost: web.example\r\n\r\n").status, 0);
}

TEST(HttpGate, UpgradesOnlyAfterTheServerSwitched) {
  const std::string upgrade =
      "GET /ws HTTP/1.1\r\nHost: web.example\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n\r\n";
  HttpGate gate = Gate();
  EXPECT_EQ(gate.Judge(upgrade + "\x81\1a").forward, upgrade.size());
  EXPECT_TRUE(gate.awaits_upgrade());
  EXPECT_EQ(gate.Judge("\x81\1a").forward, 0U);
  gate.AnswerUpgrade(true);
  EXPECT_EQ(gate.Judge("\x81\1a").forward, 3U);
  HttpGate refused = Gate();
  EXPECT_EQ(refused.Judge(upgrade).forward, upgrade.size());
  refused.AnswerUpgrade(false);
  EXPECT_EQ(refused.Judge("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 403);
  HttpGate later = Gate();
  EXPECT_EQ(later.Judge(kGood).status, 0);
  EXPECT_EQ(later.Judge(upgrade).status, 400);
}

TEST(HttpGate, HeadsAreBounded) {
  EXPECT_EQ(Gate().Judge("GET / HTTP/1.1\r\nX: " + std::string(kMaxHttpHead, 'a')).status, 431);
  EXPECT_EQ(Gate()
                .Judge("POST / HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " +
                       std::string(kMaxHttpTrailer, 'a'))
                .status,
            431);
  for (const char* chunk : {"g\r\n", "0x1\r\n", "1\n", "1;a=b\r\n", " 1\r\n", "\r\n", "1111111111111111\r\n", "1\r\nab",
                            "0\r\nHost: x\r\n\r\n"})
    EXPECT_EQ(
        Gate()
            .Judge("POST / HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(chunk))
            .status,
        400)
        << chunk;
}

TEST(ProxyRequest, Connect) {
  ProxyRequest request;
  const std::string text = "CONNECT Web.Example:443 HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_EQ(request.Parse(text.substr(0, text.size() - 1)).state, ProxyStep::State::kMore);
  const ProxyStep step = request.Parse(text + "more");
  ASSERT_EQ(step.state, ProxyStep::State::kDestination);
  EXPECT_EQ(step.consumed, text.size());
  EXPECT_EQ(step.destination.host.name, "web.example");
  EXPECT_EQ(step.destination.port, 443);
  for (const std::string bad :
       {"GET / HTTP/1.1\r\n\r\n", "CONNECT 127.1:80 HTTP/1.1\r\n\r\n", "CONNECT a.example:80\n\n",
        "CONNECT a.example:80 HTTP/3\r\n\r\n", "CONNECT [fe80::1%25lo]:80 HTTP/1.1\r\n\r\n"})
    EXPECT_EQ(ProxyRequest().Parse(bad).state, ProxyStep::State::kRefused) << bad;
  EXPECT_EQ(ProxyRequest().Parse("CONNECT " + std::string(kMaxProxyHead, 'a')).state, ProxyStep::State::kRefused);
}

TEST(ProxyRequest, Socks) {
  ProxyRequest request;
  EXPECT_EQ(request.Parse("\5\2\1"s).state, ProxyStep::State::kMore);
  ProxyStep step = request.Parse("\5\2\1\0\5\1\0\3"s);
  ASSERT_EQ(step.state, ProxyStep::State::kReply);
  EXPECT_EQ(step.consumed, 4U);
  EXPECT_EQ(step.reply, "\5\0"s);
  EXPECT_EQ(request.Parse("\5\1\0\3\x09"s).state, ProxyStep::State::kMore);
  step = request.Parse("\5\1\0\3\x09"s + "a.example\1\xbb" + "more");
  ASSERT_EQ(step.state, ProxyStep::State::kDestination);
  EXPECT_EQ(step.consumed, 16U);
  EXPECT_EQ(step.destination.port, 443);
  for (const std::string& bad : {"\5\1\0\1\1\2\3\4\0\x50"s, "\5\1\0\4"s + std::string(18, '\0'), "\5\2\0\3\1a\0\1"s,
                                 "\5\3\0\3\1a\0\1"s, "\5\1\0\3\4a..b\0\1"s, "\5\1\0\3\1a\0\0"s, "\4\1\0\3\1a\0\1"s})
    EXPECT_EQ(request.Parse(bad).state, ProxyStep::State::kRefused);
}

}  // namespace
}  // namespace caisson::egress
