#include "service/http/request_head.h"

#include <gtest/gtest.h>

#include <string>

#include "service/http/request_reader.h"

namespace caisson::service::http {
namespace {

using State = RequestReader::State;

struct Row {
  const char* what;
  std::string head;
  int status;  // 0: taken
};

// The head with everything a request needs, and `extra` lines.
std::string Get(const std::string& extra) { return "GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n" + extra + "\r\n"; }

std::vector<Row> Rows() {
  using std::string_literals::operator""s;
  return {
      {"plain", Get(""), 0},
      {"query and escapes", "GET /v1/jobs?label=a%3Db&limit=10 HTTP/1.1\r\nHost: localhost\r\n\r\n", 0},
      {"length", Get("Content-Length: 0\r\n"), 0},
      {"white space around a value", Get("Accept: \t text/event-stream \t\r\n"), 0},
      {"empty value", Get("Accept:\r\n"), 0},
      {"bytes above ASCII in a value", Get("User-Agent: \xc3\xa9\r\n"), 0},
      {"a list field twice", Get("Via: 1.1 a\r\nVia: 1.1 b\r\n"), 0},
      {"expect", Get("Expect: 100-Continue\r\nContent-Length: 2\r\n"), 0},

      {"HTTP/0.9", "GET /v1/jobs\r\n", 400},
      {"HTTP/1.0", "GET / HTTP/1.0\r\nHost: a\r\n\r\n", 505},
      {"HTTP/2.0", "PRI * HTTP/2.0\r\n\r\n", 505},
      {"no version", "GET / FTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"lower-case version", "GET / http/1.1\r\nHost: a\r\n\r\n", 400},
      {"long version", "GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400},
      {"two blanks", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"tab for a blank", "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"blank at the end", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400},
      {"blank in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"empty line before", "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"method in small letters", "get / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"long method", "ABCDEFGHIJKLMNOPQ / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"absolute URI", "GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"authority", "CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"asterisk", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"fragment", "GET /a#b HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"backslash", "GET /a\\b HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"half an escape", "GET /a%2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"no hex in an escape", "GET /a%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"bytes above ASCII in the target", "GET /\xc3\xa9 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"long first line", "GET /" + std::string(9000, 'a'), 414},

      {"bare LF at the first line", "GET / HTTP/1.1\nHost: a\r\n\r\n", 400},
      {"bare LF at a field", Get("A: b\nC: d\r\n"), 400},
      {"bare LF at the end", "GET / HTTP/1.1\r\nHost: a\r\n\n", 400},
      {"bare CR", Get("A: b\rC: d\r\n"), 400},
      {"CR CR LF", Get("A: b\r\r\n"), 400},
      {"NUL in a value", Get("A: b\0c\r\n"s), 400},
      {"NUL in a name", Get("A\0: b\r\n"s), 400},
      {"NUL in the target", "GET /\0 HTTP/1.1\r\n"s, 400},
      {"control character", Get("A: \x01\r\n"), 400},
      {"DEL", Get("A: \x7f\r\n"), 400},
      {"fold", Get("A: b\r\n c\r\n"), 400},
      {"fold with a tab", Get("A: b\r\n\tc\r\n"), 400},
      {"blank before the first field", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400},
      {"blank before a colon", Get("Content-Length : 5\r\n"), 400},
      {"no colon", Get("Content-Length\r\n"), 400},
      {"no name", Get(": 5\r\n"), 400},
      {"bytes above ASCII in a name", Get("H\xc3\xb6st: a\r\n"), 400},

      {"no Host", "GET / HTTP/1.1\r\nAccept: a\r\n\r\n", 400},
      {"empty Host", "GET / HTTP/1.1\r\nHost: \r\n\r\n", 400},
      {"two Hosts", Get("Host: localhost\r\n"), 400},
      {"two Hosts, spelt differently", Get("hOST: evil.example\r\n"), 400},
      {"two lengths", Get("Content-Length: 5\r\nContent-Length: 6\r\n"), 400},
      {"two equal lengths", Get("Content-Length: 5\r\nContent-Length: 5\r\n"), 400},
      {"a list of lengths", Get("Content-Length: 5, 5\r\n"), 400},
      {"signed length", Get("Content-Length: +5\r\n"), 400},
      {"negative length", Get("Content-Length: -1\r\n"), 400},
      {"hexadecimal length", Get("Content-Length: 0x5\r\n"), 400},
      {"length that overflows", Get("Content-Length: 18446744073709551616\r\n"), 400},
      {"empty length", Get("Content-Length:\r\n"), 400},
      {"length and encoding", Get("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400},
      {"encoding and length", Get("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), 400},
      {"chunks", Get("Transfer-Encoding: chunked\r\n"), 411},
      {"disguised chunks", Get("Transfer-Encoding: xchunked\r\n"), 411},
      {"two encodings", Get("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"), 400},
      {"two tokens", Get("Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"), 400},
      {"two origins", Get("Origin: http://localhost\r\nOrigin: null\r\n"), 400},
      {"other expectation", Get("Expect: 200-ok\r\n"), 417},
      {"large head", Get("A: " + std::string(20000, 'a') + "\r\n"), 431},
      {"many fields", Get([] {
         std::string lines;
         for (int i = 0; i < 101; ++i) lines += "A: b\r\n";
         return lines;
       }()),
       431},
  };
}

int StatusOf(RequestReader& reader, State state) {
  if (state == State::kRefused) return reader.fault().status;
  return state == State::kBegun ? 0 : -1;
}

TEST(RequestHead, IsTakenOrRefused) {
  for (const Row& row : Rows()) {
    RequestReader reader(16384);
    EXPECT_EQ(StatusOf(reader, reader.Take(row.head)), row.status) << row.what << ": " << reader.fault().reason;
  }
}

// How the bytes are cut into packets changes nothing, and a refusal does not wait for the rest.
TEST(RequestHead, IsReadTheSameHoweverItArrives) {
  for (const Row& row : Rows()) {
    RequestReader reader(16384);
    State state = State::kHead;
    for (size_t i = 0; i < row.head.size() && state == State::kHead; ++i) state = reader.Take(row.head.substr(i, 1));
    EXPECT_EQ(StatusOf(reader, state), row.status) << row.what;
  }
}

TEST(RequestReader, GivesWhatWasSent) {
  RequestReader reader(16384);
  const std::string first =
      "POST /v1/jobs?wait=1s HTTP/1.1\r\nHost: localhost:80\r\nX-Thing:  some words \r\nContent-Length: 5\r\n\r\nhello";
  const std::string second = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  ASSERT_EQ(reader.Take(first + second), State::kBegun);
  EXPECT_EQ(reader.request().content_length, 5);
  EXPECT_TRUE(reader.request().body.empty());
  ASSERT_EQ(reader.AcceptBody(), State::kWhole);
  EXPECT_EQ(reader.request().method, "POST");
  EXPECT_EQ(reader.request().target, "/v1/jobs?wait=1s");
  EXPECT_EQ(reader.request().Field("x-thing"), "some words");
  EXPECT_EQ(reader.request().body, "hello");
  EXPECT_TRUE(reader.keep_alive());
  ASSERT_EQ(reader.Next(), State::kBegun);
  EXPECT_EQ(reader.request().target, "/healthz");
  EXPECT_EQ(reader.request().Field("x-thing"), std::nullopt);
  EXPECT_FALSE(reader.keep_alive());
  ASSERT_EQ(reader.AcceptBody(), State::kWhole);
  ASSERT_EQ(reader.Next(), State::kHead);
  EXPECT_FALSE(reader.started());
}

TEST(RequestReader, NeverReadsBehindARefusal) {
  RequestReader reader(16384);
  ASSERT_EQ(reader.Take("GET / HTTP/1.1\nHost: a\n\n"), State::kRefused);
  EXPECT_EQ(reader.Take(Get("")), State::kRefused);
}

TEST(RequestReader, TakesABodyInPieces) {
  RequestReader reader(16384);
  const std::string body(100'000, 'x');
  ASSERT_EQ(reader.Take("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"), State::kBegun);
  ASSERT_EQ(reader.AcceptBody(), State::kBody);
  for (size_t at = 0; at < body.size(); at += 1000)
    EXPECT_EQ(reader.Take(body.substr(at, 1000)), at + 1000 < body.size() ? State::kBody : State::kWhole);
  EXPECT_EQ(reader.request().body, body);
}

}  // namespace
}  // namespace caisson::service::http
