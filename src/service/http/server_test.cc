// The server over real sockets, with a handler whose behaviour is chosen by the path.
#include "service/http/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <future>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "service/http/call_pool.h"

namespace caisson::service::http {
namespace {

constexpr int kPatienceMs = 30'000;  // a test that waits this long has failed

struct Directory {
  Directory() {
    char path[] = "/tmp/caisson-http-test-XXXXXX";
    EXPECT_NE(::mkdtemp(path), nullptr);
    name = path;
  }
  ~Directory() { std::filesystem::remove_all(name); }
  std::string name;
};

// A gate that a test can close and open.
class Gate {
 public:
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void Pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void AwaitWaiting(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

class Numbers : public BodyStream {
 public:
  explicit Numbers(Wake wake) : wake_(std::move(wake)) {}
  Piece Next() override {
    if (++count_ == 4) return {"", Piece::Then::kEnd};
    if (count_ == 2) {
      wake_();  // also before it says that it waits
      return {"", Piece::Then::kWait};
    }
    return {std::to_string(count_) + "\n", Piece::Then::kMore};
  }

 private:
  Wake wake_;
  int count_ = 0;
};

class Endless : public BodyStream {
 public:
  Piece Next() override { return {std::exchange(said_, true) ? "" : "begun\n", Piece::Then::kWait}; }

 private:
  bool said_ = false;
};

class Broken : public BodyStream {
 public:
  Piece Next() override { return {"half", Piece::Then::kEnd, true}; }
};

class UntilLast : public Waiter {
 public:
  std::optional<Reply> Poll(bool last) override {
    if (!last) return std::nullopt;
    return Response{202, {}, "not yet", "/wait"};
  }
};

class Echo : public Handler {
 public:
  std::variant<int64_t, Response> Begin(Request& head) override {
    if (head.target == "/forbidden") return Response{403, {}, "no"};
    return int64_t{1000};
  }
  Answer Handle(const Request& request, const Wake& wake) override {
    ++handled;
    if (request.target == "/stream")
      return Streamed{{200, {}, "", "/stream"}, std::nullopt, std::make_unique<Numbers>(wake)};
    if (request.target == "/sized") return Streamed{{200, {}, "", "/sized"}, 4, std::make_unique<Numbers>(wake)};
    if (request.target == "/endless")
      return Streamed{{200, {}, "", "/endless"}, std::nullopt, std::make_unique<Endless>()};
    if (request.target == "/broken")
      return Streamed{{200, {}, "", "/broken"}, std::nullopt, std::make_unique<Broken>()};
    if (request.target == "/wait") return Awaited{50, "/wait", std::make_unique<UntilLast>()};
    if (request.target == "/long-wait") return Awaited{1'000'000, "/long-wait", std::make_unique<UntilLast>()};
    if (request.target == "/gate") gate.Pass();
    if (request.target == "/large") return Response{200, {}, std::string(3 << 20, 'l'), "/large"};
    return Response{200, {{"X-Value", "a\r\nInjected: b"}}, request.method + " " + request.body, "/echo"};
  }
  Response Refuse(int status, const std::string& detail, int retry_after_s) override {
    Response response{status, {}, detail};
    if (retry_after_s > 0) response.fields.emplace_back("Retry-After", std::to_string(retry_after_s));
    return response;
  }

  std::atomic<int> handled = 0;
  Gate gate;
};

class Client {
 public:
  explicit Client(const std::string& socket) {
    fd_.Reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, socket.data(), socket.size());
    connected_ = ::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  explicit Client(int port) {
    fd_.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  bool connected() const { return connected_; }
  void Send(std::string_view bytes) {
    ASSERT_EQ(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  void EndSending() { ::shutdown(fd_.get(), SHUT_WR); }
  // Reads until the text has come; false when the connection ended before.
  bool ReadUntil(const std::string& text) {
    while (received.find(text) == std::string::npos)
      if (!ReadSome()) return false;
    return true;
  }
  // Everything until the server closes.
  std::string ReadAll() {
    while (ReadSome()) {
    }
    return received;
  }
  int status() const { return received.size() < 12 ? 0 : std::stoi(received.substr(9, 3)); }
  std::string received;

 private:
  bool ReadSome() {
    struct pollfd ready {
      fd_.get(), POLLIN, 0
    };
    if (::poll(&ready, 1, kPatienceMs) != 1) {
      ADD_FAILURE() << "nothing came; so far: " << received;
      return false;
    }
    char bytes[4096];
    const ssize_t count = ::recv(fd_.get(), bytes, sizeof(bytes), 0);
    if (count <= 0) return false;
    received.append(bytes, static_cast<size_t>(count));
    return true;
  }

  UniqueFd fd_;
  bool connected_ = false;
};

class ServerTest : public testing::Test {
 protected:
  ServerTest() {
    config.socket = directory.name + "/s";
    config.on_finished = [this](const Finished& one) {
      const std::lock_guard lock(mutex);
      finished.push_back(one);
    };
  }
  void Start() {
    Result<std::unique_ptr<Server>> started = Server::Start(config, handler);
    ASSERT_TRUE(started) << started.error().message;
    server = *std::move(started);
  }
  std::string Ask(const std::string& bytes) {
    Client client(config.socket);
    client.Send(bytes);
    client.EndSending();
    return client.ReadAll();
  }

  Directory directory;
  ServerConfig config;
  std::shared_ptr<Echo> handler = std::make_shared<Echo>();
  std::mutex mutex;
  std::vector<Finished> finished;
  std::unique_ptr<Server> server;
};

std::string Get(const std::string& path, const std::string& extra = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + extra + "\r\n";
}
std::string Post(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

TEST_F(ServerTest, AnswersOneRequestAfterTheOther) {
  Start();
  Client client(config.socket);
  client.Send(Post("/a", "one"));
  ASSERT_TRUE(client.ReadUntil("POST one")) << client.received;
  client.Send(Post("/b", "two") + Post("/c", "three"));  // pipelined
  ASSERT_TRUE(client.ReadUntil("POST three"));
  EXPECT_LT(client.received.find("POST two"), client.received.find("POST three"));
  EXPECT_EQ(handler->handled, 3);
}

TEST_F(ServerTest, AValueCannotBecomeAField) {
  Start();
  EXPECT_EQ(Ask(Get("/", "Connection: close\r\n")).find("\nInjected:"), std::string::npos);
}

TEST_F(ServerTest, NothingBehindARefusedRequestIsExecuted) {
  Start();
  const std::string smuggled = Post("/smuggled", "x");
  for (const std::string& bad :
       {std::string(
            "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        std::string("POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 44\r\n\r\n"),
        std::string("POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0;ext=\"\n\"\r\n\r\n"),
        std::string("POST /a HTTP/1.1\nHost: localhost\n\n"), std::string("GET /a\r\n"),
        std::string("POST /a HTTP/1.1\r\nHost: localhost\r\n Content-Length: 3\r\n\r\nabc"),
        std::string("POST /forbidden HTTP/1.1\r\nHost: localhost\r\nContent-Length: ") +
            std::to_string(smuggled.size()) + "\r\n\r\n"}) {
    const std::string answer = Ask(bad + smuggled + smuggled);
    EXPECT_EQ(answer.find("POST x"), std::string::npos) << bad;
    EXPECT_EQ(answer.compare(0, 10, "HTTP/1.1 4"), 0) << answer;
    EXPECT_NE(answer.find("Connection: close"), std::string::npos) << answer;
    EXPECT_EQ(answer.find("HTTP/1.1 ", 5), std::string::npos) << answer;
  }
  EXPECT_EQ(handler->handled, 0);
}

TEST_F(ServerTest, BodiesAreBounded) {
  Start();
  EXPECT_EQ(Ask(Post("/", std::string(1000, 'a'))).compare(0, 12, "HTTP/1.1 200"), 0);
  EXPECT_EQ(Ask(Post("/", std::string(1001, 'a'))).compare(0, 12, "HTTP/1.1 413"), 0);
  // The refusal does not wait for the body.
  EXPECT_EQ(Ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n").compare(0, 12, "HTTP/1.1 413"), 0);
  EXPECT_EQ(handler->handled, 1);
}

TEST_F(ServerTest, ATruncatedBodyIsNotARequest) {
  Start();
  EXPECT_EQ(Ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc").compare(0, 12, "HTTP/1.1 400"), 0);
  EXPECT_EQ(handler->handled, 0);
}

TEST_F(ServerTest, ExpectIsAnsweredBeforeTheBodyIsRead) {
  Start();
  Client client(config.socket);
  client.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.ReadUntil("HTTP/1.1 100 Continue\r\n\r\n"));
  client.Send("abc");
  EXPECT_TRUE(client.ReadUntil("POST abc"));
  // A request that will be refused gets the refusal instead.
  EXPECT_EQ(Ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000\r\nExpect: 100-continue\r\n\r\n")
                .compare(0, 12, "HTTP/1.1 413"),
            0);
}

TEST_F(ServerTest, AHeadHasNoBodyAfterIt) {
  Start();
  Client client(config.socket);
  client.Send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(client.ReadUntil("\r\n\r\n"));
  client.Send(Post("/", "next"));
  ASSERT_TRUE(client.ReadUntil("POST next"));
  EXPECT_EQ(client.received.find("HEAD"), std::string::npos);
}

TEST_F(ServerTest, StreamsComeInChunksAndTheConnectionGoesOn) {
  Start();
  Client client(config.socket);
  client.Send(Get("/stream"));
  ASSERT_TRUE(client.ReadUntil("0\r\n\r\n"));
  EXPECT_NE(client.received.find("\r\n\r\n2\r\n1\n\r\n2\r\n3\n\r\n0\r\n\r\n"), std::string::npos) << client.received;
  client.Send(Get("/sized"));
  ASSERT_TRUE(client.ReadUntil("1\n3\n"));
  client.Send(Post("/", "after"));
  ASSERT_TRUE(client.ReadUntil("POST after"));
}

TEST_F(ServerTest, AStreamThatBrokeIsNotWhole) {
  Start();
  Client client(config.socket);
  client.Send(Get("/broken"));
  EXPECT_EQ(client.ReadAll().find("\r\n0\r\n"), std::string::npos);
  EXPECT_NE(client.received.find("half"), std::string::npos);
}

TEST_F(ServerTest, WaitingEndsWhenTheTimeIsUp) {
  Start();
  EXPECT_NE(Ask(Get("/wait", "Connection: close\r\n")).find("not yet"), std::string::npos);
}

TEST_F(ServerTest, StreamsAreBounded) {
  config.bounds.streams = 1;
  Start();
  Client first(config.socket);
  first.Send(Get("/endless"));
  ASSERT_TRUE(first.ReadUntil("begun"));
  EXPECT_EQ(Ask(Get("/endless")).compare(0, 12, "HTTP/1.1 503"), 0);
  EXPECT_EQ(Ask(Get("/wait")).compare(0, 12, "HTTP/1.1 503"), 0);
}

TEST_F(ServerTest, CallsAreBounded) {
  config.bounds.threads = 1;
  config.bounds.waiting_calls = 1;
  Start();
  Client running(config.socket), waiting(config.socket);
  running.Send(Get("/gate"));
  handler->gate.AwaitWaiting(1);
  waiting.Send(Get("/gate"));
  // The test cannot see whether `waiting` is queued already; of many requests, all but one are refused.
  std::string refused;
  for (int i = 0; i < 3 && refused.find("503") == std::string::npos; ++i) {
    Client client(config.socket);
    client.Send(Get("/gate", "Connection: close\r\n"));
    struct pollfd none {};
    ::poll(&none, 0, 10);
    if (i < 2) continue;
    refused = client.ReadAll();
  }
  EXPECT_EQ(refused.compare(0, 12, "HTTP/1.1 503"), 0) << refused;
  EXPECT_NE(refused.find("Retry-After: 1"), std::string::npos);
  handler->gate.Open();
  EXPECT_TRUE(running.ReadUntil("GET "));
}

TEST_F(ServerTest, LargeAnswersAreWhole) {
  config.spool = ::testing::TempDir();
  Start();
  const std::string answer = Ask(Get("/large", "Connection: close\r\n"));
  EXPECT_NE(answer.find("Content-Length: 3145728\r\n"), std::string::npos);
  EXPECT_EQ(answer.substr(answer.find("\r\n\r\n") + 4), std::string(3 << 20, 'l'));
}

TEST_F(ServerTest, AReaderWhoTakesNothingIsDropped) {
  config.bounds.write_timeout_ms = 200;
  config.bounds.write_bytes_per_second = 1 << 20;
  Start();
  Client client(config.socket);
  client.Send(Get("/large"));
  struct pollfd none {};
  ::poll(&none, 0, 1'500);
  EXPECT_LT(client.ReadAll().size(), size_t{3} << 20) << "what the kernel held, and then the end";
}

TEST(CallPool, OneLineNeverHasAllThreads) {
  Gate gate;
  std::atomic<int> other = 0;
  {
    CallPool pool(4, 100);
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(pool.Try("greedy", [&] { gate.Pass(); }));
    gate.AwaitWaiting(2);
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(pool.Try("quiet", [&] { ++other; }));
    const int64_t until = MonotonicNanos() + 10'000'000'000;
    while (other < 50 && MonotonicNanos() < until) std::this_thread::yield();
    EXPECT_EQ(other, 50);
    gate.Open();
  }
}

TEST(CallPool, AHeavyCallerRunsAtLowPriorityUntilItHasPaid) {
  CallPool pool(4, 100);
  const auto priority_of = [&pool](const std::string& line) {
    std::promise<int> priority;
    EXPECT_TRUE(pool.Try(line, [&] { priority.set_value(::getpriority(PRIO_PROCESS, 0)); }));
    return priority.get_future().get();
  };
  const int usual = priority_of("quiet");
  EXPECT_EQ(priority_of("greedy"), usual);
  std::promise<void> burned;
  EXPECT_TRUE(pool.Try("greedy", [&] {
    while (ThreadCpuNanos() < 2 * CallPool::kBurstNanos) continue;
    burned.set_value();
  }));
  burned.get_future().get();
  const int64_t until = MonotonicNanos() + 60'000'000'000;
  while (priority_of("greedy") == usual && MonotonicNanos() < until) continue;  // it is charged after it has ended
  EXPECT_GT(priority_of("greedy"), usual);
  EXPECT_EQ(priority_of("quiet"), usual);
  // Asking costs processor time too, so it is asked rarely.
  while (priority_of("greedy") != usual && MonotonicNanos() < until) {
    struct pollfd none {};
    ::poll(&none, 0, 20);
  }
  EXPECT_EQ(priority_of("greedy"), usual);
}

TEST_F(ServerTest, ConnectionsAreBounded) {
  config.bounds.connections = config.bounds.operator_connections = 2;
  Start();
  Client first(config.socket), second(config.socket);
  first.Send(Get("/"));
  second.Send(Get("/"));
  ASSERT_TRUE(first.ReadUntil("GET "));
  ASSERT_TRUE(second.ReadUntil("GET "));
  Client third(config.socket);
  EXPECT_EQ(third.ReadAll().compare(0, 12, "HTTP/1.1 503"), 0);
}

TEST_F(ServerTest, ASlowHeadIsCutOffHoweverItDribbles) {
  config.bounds.head_timeout_ms = 300;
  Start();
  Client client(config.socket);
  std::atomic<bool> ended = false;
  std::thread dribble([&] {
    while (!ended) {
      client.Send("A");
      struct pollfd none {};
      ::poll(&none, 0, 20);
    }
  });
  EXPECT_TRUE(client.ReadUntil("\r\n\r\n"));
  EXPECT_EQ(client.status(), 408) << client.received;
  ended = true;
  dribble.join();
}

TEST_F(ServerTest, ASlowBodyIsCutOff) {
  config.bounds.head_timeout_ms = 200;
  Start();
  Client client(config.socket);
  client.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_TRUE(client.ReadUntil("\r\n\r\n"));
  EXPECT_EQ(client.status(), 408) << client.received;
  EXPECT_EQ(handler->handled, 0);
}

TEST_F(ServerTest, AnIdleConnectionIsClosed) {
  config.bounds.idle_timeout_ms = 50;
  Start();
  Client client(config.socket);
  EXPECT_EQ(client.ReadAll(), "");
}

TEST_F(ServerTest, DrainingLetsRequestsFinishAndEndsStreams) {
  Start();
  Client busy(config.socket), streaming(config.socket), waiting(config.socket), idle(config.socket);
  busy.Send(Get("/gate"));
  handler->gate.AwaitWaiting(1);
  streaming.Send(Get("/endless"));
  ASSERT_TRUE(streaming.ReadUntil("begun"));
  waiting.Send(Get("/long-wait"));
  while (handler->handled < 3) std::this_thread::yield();
  std::thread drain([&] { server->Drain(kPatienceMs); });
  EXPECT_EQ(streaming.ReadAll().find("0\r\n\r\n"), std::string::npos);
  EXPECT_NE(waiting.ReadAll().find("not yet"), std::string::npos);
  EXPECT_EQ(idle.ReadAll(), "");
  EXPECT_FALSE(Client(config.socket).connected());
  handler->gate.Open();
  EXPECT_NE(busy.ReadAll().find("GET "), std::string::npos);
  drain.join();
  EXPECT_FALSE(std::filesystem::exists(config.socket));
}

TEST_F(ServerTest, TellsWhatItAnswered) {
  Start();
  Ask(Post("/x", "abc"));
  Ask("nonsense\r\n\r\n");
  server.reset();
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_EQ(finished[0].method, "POST");
  EXPECT_EQ(finished[0].route, "/echo");
  EXPECT_EQ(finished[0].status, 200);
  EXPECT_EQ(finished[0].peer, "uid:" + std::to_string(::geteuid()));
  EXPECT_GT(finished[0].bytes_sent, 0);
  EXPECT_EQ(finished[1].status, 400);
  EXPECT_EQ(finished[1].route, "");
}

TEST_F(ServerTest, TheSocketIsOursAlone) {
  Start();
  struct stat info {};
  ASSERT_EQ(::stat(config.socket.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  const Result<std::unique_ptr<Server>> second = Server::Start(config, handler);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorKind::kConflict);
  EXPECT_TRUE(Client(config.socket).connected());  // and the first is unharmed
}

TEST_F(ServerTest, ADeadServersSocketIsReplaced) {
  {
    UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, config.socket.data(), config.socket.size());
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  Start();
  EXPECT_EQ(Ask(Get("/")).compare(0, 12, "HTTP/1.1 200"), 0);
}

TEST_F(ServerTest, WhatIsNoSocketIsNotReplaced) {
  UniqueFd file(::open(config.socket.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  EXPECT_FALSE(Server::Start(config, handler));
  EXPECT_TRUE(std::filesystem::is_regular_file(config.socket));
}

TEST_F(ServerTest, ATcpPortNeedsTokensAndIsLoopbackOrTls) {
  config.listen = "127.0.0.1:0";
  EXPECT_FALSE(Server::Start(config, handler));
  config.tokens = "named";  // read by the handler's side, not here
  Start();
  ASSERT_GT(server->port(), 0);
  Client client(server->port());
  client.Send(Get("/"));
  EXPECT_TRUE(client.ReadUntil("GET "));
  server.reset();
  for (const char* remote : {"0.0.0.0:0", "[::]:0"}) {
    config.listen = remote;
    const auto refused = Server::Start(config, handler);
    ASSERT_FALSE(refused) << remote;
    EXPECT_NE(refused.error().message.find("tls_certificate"), std::string::npos) << refused.error().message;
  }
  for (const char* nonsense :
       {"8123", "localhost", "example.org:80", "127.0.0.1:70000", "[::1", "[127.0.0.1]:1", ":80"}) {
    config.listen = nonsense;
    EXPECT_FALSE(Server::Start(config, handler)) << nonsense;
  }
}

}  // namespace
}  // namespace caisson::service::http
