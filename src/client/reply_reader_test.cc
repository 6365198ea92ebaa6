#include "client/reply_reader.h"

#include <gtest/gtest.h>

#include "client/endpoint.h"
#include "client/event_stream.h"

namespace caisson::client {
namespace {

struct Outcome {
  bool whole = false;
  bool failed = false;
  int status = 0;
  std::string body;
};

// The reader's result for `bytes` that arrive in pieces of `step`.
Outcome Read(std::string_view bytes, size_t step) {
  Outcome outcome;
  ReplyReader reader;
  for (size_t at = 0; at < bytes.size(); at += step) {
    const Result<bool> taken = reader.Take(bytes.substr(at, step), [&](std::string_view piece) -> Status {
      outcome.body.append(piece);
      return {};
    });
    outcome.failed = !taken;
    outcome.whole = taken && *taken;
    if (outcome.failed) break;
  }
  outcome.status = reader.status();
  if (!outcome.failed) EXPECT_EQ(bool(reader.End()), outcome.whole);
  return outcome;
}

TEST(ReplyReader, ReadsWhatTheServiceSends) {
  const std::string replies[] = {
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length:5\r\n\r\nhello",
  };
  for (const std::string& reply : replies) {
    for (const size_t step : {size_t{1}, size_t{3}, size_t{1000}}) {
      const Outcome outcome = Read(reply, step);
      EXPECT_TRUE(outcome.whole) << reply;
      EXPECT_EQ(outcome.status, 200);
      EXPECT_EQ(outcome.body, "hello");
    }
    for (size_t cut = 0; cut < reply.size(); ++cut) EXPECT_FALSE(Read(reply.substr(0, cut), 1000).whole) << cut;
  }
  EXPECT_TRUE(Read("HTTP/1.1 204 No Content\r\nX: y\r\n\r\n", 1).whole);
}

TEST(ReplyReader, RefusesWhatCouldBeReadInTwoWays) {
  const std::string replies[] = {
      "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
      "HTTP/1.1 OK\r\nContent-Length: 0\r\n\r\n",
      "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
      "SSH-2.0-OpenSSH\r\n\r\n",
      "HTTP/1.1 200 OK\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello",
      "HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 0\r\n\r\n",
      "HTTP/1.1 200 OK\r\nX: " + std::string(40000, 'x'),
  };
  for (const std::string& reply : replies)
    for (const size_t step : {size_t{1}, size_t{1000000}}) EXPECT_TRUE(Read(reply, step).failed) << reply.substr(0, 99);
}

TEST(EventParser, PutsEventsTogether) {
  const std::string stream =
      "retry: 1000\n\nid: 1\nevent: queued\ndata: {\"a\":1}\n\n: still here\n\nid: 2\nevent: result\ndata: {}\n\nid: "
      "3\n";
  for (const size_t step : {size_t{1}, size_t{7}, size_t{1000}}) {
    std::vector<std::pair<int64_t, std::string>> events;
    EventParser parser;
    for (size_t at = 0; at < stream.size(); at += step) {
      EXPECT_TRUE(parser.Take(std::string_view(stream).substr(at, step), [&](int64_t seq, const std::string& data) {
        events.emplace_back(seq, data);
        return Status();
      }));
    }
    const std::vector<std::pair<int64_t, std::string>> expected = {{1, "{\"a\":1}"}, {2, "{}"}};
    EXPECT_EQ(events, expected);
  }
}

TEST(Endpoint, IsReadFromUrls) {
  EXPECT_EQ(ParseUrl("unix:/run/x.sock")->socket, "/run/x.sock");
  EXPECT_EQ(ParseUrl("unix:///run/x.sock")->socket, "/run/x.sock");
  EXPECT_EQ(ParseUrl("http://127.0.0.1:8123")->HostField(), "127.0.0.1:8123");
  EXPECT_EQ(ParseUrl("http://[::1]:8123/")->HostField(), "[::1]:8123");
  EXPECT_EQ(ParseUrl("https://runner.example.org")->HostField(), "runner.example.org:443");
  for (const char* url : {"", "unix:", "unix:x", "ftp://h", "http://", "http://h:x", "http://h:0", "http://h:65536",
                          "http://h/path", "http://u@h", "http://h?q", "http://h\r\nX: y", "http://[::1", "http://a b"})
    EXPECT_FALSE(ParseUrl(url)) << url;
}

}  // namespace
}  // namespace caisson::client
