#include "launcher/channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace caisson::launcher {
namespace {

class ChannelTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    ours_ = UniqueFd(ends[0]);
    theirs_ = UniqueFd(ends[1]);
  }
  // Sends bytes that Send would never produce, with a descriptor beside them unless `fd` is -1.
  void SendRaw(std::string bytes, int fd = -1) {
    struct iovec part {
      bytes.data(), bytes.size()
    };
    alignas(struct cmsghdr) char rights[CMSG_SPACE(sizeof(int))] = {};
    struct msghdr message {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fd >= 0) {
      message.msg_control = rights;
      message.msg_controllen = sizeof(rights);
      struct cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }
    ASSERT_EQ(::sendmsg(ours_.get(), &message, 0), static_cast<ssize_t>(bytes.size()));
  }
  std::string RefusalOf(std::string bytes, int fd = -1) {
    SendRaw(std::move(bytes), fd);
    const Result<Frame> frame = Receive(theirs_.get());
    return frame ? "accepted" : frame.error().message;
  }

  UniqueFd ours_, theirs_;
};

std::string Spilled(uint64_t size) {
  std::string packet = {static_cast<char>(Kind::kOutcome), 1};
  for (int i = 0; i < 8; ++i) packet.push_back(static_cast<char>(size >> (8 * i)));
  return packet;
}

UniqueFd MemoryFile(size_t size, int seals) {
  UniqueFd file(::memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(size)), 0);
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

constexpr int kAllSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

TEST_F(ChannelTest, FramesOfAnySizeWithDescriptors) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{96 * 1024}, size_t{96 * 1024 + 1}, size_t{5} << 20}) {
    const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const Encoded sent{std::string(size, 'x'), {null.get(), null.get()}};
    ASSERT_TRUE(Send(ours_.get(), Kind::kOutcome, sent, true));
    Result<Frame> got = Receive(theirs_.get());
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->kind, Kind::kOutcome);
    EXPECT_EQ(got->body(), sent.bytes);
    EXPECT_EQ(got->fds.size(), 2U);
    EXPECT_NE(::fcntl(got->fds[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  }
}

TEST_F(ChannelTest, WhatIsNoFrame) {
  EXPECT_EQ(RefusalOf("x"), "frame: of no known kind");
  EXPECT_EQ(RefusalOf("\x7f\x01hello"), "frame: of no known kind");
  EXPECT_EQ(RefusalOf("\xff\x01hello"), "frame: of no known kind");
  EXPECT_EQ(RefusalOf({static_cast<char>(Kind::kOutcome), 2, 'x'}), "frame: its body is nowhere");
  EXPECT_EQ(RefusalOf(Spilled(1)), "frame: its body is nowhere");
  EXPECT_EQ(RefusalOf(std::string(120'000, '\x85')), "frame: longer than any can be");
}

TEST_F(ChannelTest, ALargeBodyMustBeSealed) {
  EXPECT_EQ(RefusalOf(Spilled(4096), MemoryFile(4096, 0).get()), "frame: its body is not in a sealed memfd");
  EXPECT_EQ(RefusalOf(Spilled(4096), MemoryFile(4096, F_SEAL_SHRINK | F_SEAL_GROW).get()),
            "frame: its body is not in a sealed memfd");
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(RefusalOf(Spilled(4096), null.get()), "frame: its body is not in a sealed memfd");
  EXPECT_NE(RefusalOf(Spilled(8192), MemoryFile(4096, kAllSeals).get()), "accepted");
  EXPECT_NE(RefusalOf(Spilled(0), MemoryFile(0, kAllSeals).get()), "accepted");
  EXPECT_NE(RefusalOf(Spilled(kMaxBodyBytes + 1), MemoryFile(kMaxBodyBytes + 1, kAllSeals).get()), "accepted");
  EXPECT_EQ(RefusalOf(Spilled(4096), MemoryFile(4096, kAllSeals).get()), "accepted");
}

TEST_F(ChannelTest, AFullConnectionSaysSo) {
  const Encoded chunk{std::string(65536, 'x'), {}};
  Status sent;
  int frames = 0;
  while ((sent = Send(ours_.get(), Kind::kOutput, chunk, false))) ASSERT_LT(++frames, 1000);
  EXPECT_EQ(sent.error().errno_value, EAGAIN);
  ASSERT_TRUE(Receive(theirs_.get()));
  EXPECT_TRUE(Send(ours_.get(), Kind::kOutput, chunk, true));
}

TEST_F(ChannelTest, LateSignalsAreSkipped) {
  SendSignal(ours_.get(), {2});
  SendSignal(ours_.get(), {});
  ASSERT_TRUE(Send(ours_.get(), Kind::kCollect, {"x", {}}, true));
  const Result<Frame> frame = Receive(theirs_.get());
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->body(), "x");
}

TEST_F(ChannelTest, SignalsAreTakenOneByOneAndTheEndAsksToStop) {
  const auto taken = [&] {
    const std::optional<StopRequest> request = TakeSignal(theirs_.get());
    return request ? request->signal : -1;
  };
  EXPECT_EQ(taken(), -1);
  SendSignal(ours_.get(), {2});
  SendSignal(ours_.get(), {15});
  SendSignal(ours_.get(), {});
  EXPECT_EQ(taken(), 2);
  EXPECT_EQ(taken(), 15);
  EXPECT_EQ(taken(), 0);
  EXPECT_EQ(taken(), -1);
  // While a command runs, a client of ours sends only signals; any other frame counts as a request to stop.
  for (const std::string& bytes : {std::string("\x8a"), std::string("\x8a\x02\x02"), std::string("\x02\x02")}) {
    ASSERT_EQ(::send(ours_.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    EXPECT_EQ(taken(), 0);
  }
  ours_.Reset();
  EXPECT_EQ(taken(), 0);
}

TEST_F(ChannelTest, TheLastWordIsHeardWhateverWasNotRead) {
  ASSERT_TRUE(Send(ours_.get(), Kind::kCollect, {"never read", {}}, true));
  ASSERT_TRUE(Send(theirs_.get(), Kind::kError, Encode(Error::Invalid("why")), true));
  theirs_.Reset();
  const Result<Frame> last = Receive(ours_.get());
  ASSERT_TRUE(last) << last.error().message;
  EXPECT_EQ(DecodeError(last->body()).message, "why");
  const Result<Frame> end = Receive(ours_.get());
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().kind, ErrorKind::kSystem);
  EXPECT_EQ(Send(ours_.get(), Kind::kCollect, {"x", {}}, true).error().kind, ErrorKind::kSystem);
}

class OpenTest : public ChannelTest {
 protected:
  void SetUp() override {
    ChannelTest::SetUp();
    const int on = 1;
    ASSERT_EQ(::setsockopt(theirs_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
  }
};

TEST_F(OpenTest, NamesItsSender) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd run(pair[0]), other(pair[1]);
  ASSERT_TRUE(SendRunRequest(ours_.get(), run.get(), sandbox::Start::kParked));
  const Result<RunRequest> run_request = ReceiveRunRequest(theirs_.get());
  ASSERT_TRUE(run_request) << run_request.error().message;
  EXPECT_EQ(run_request->sender.pid, ::getpid());
  EXPECT_EQ(run_request->sender.uid, ::geteuid());
  EXPECT_EQ(run_request->warmest, sandbox::Start::kParked);
  EXPECT_FALSE(run_request->is_status);
  ASSERT_TRUE(Send(run_request->run.get(), Kind::kCollect, {"hello", {}}, true));
  EXPECT_EQ(Receive(other.get())->body(), "hello");
}

TEST_F(OpenTest, MayAskForTheStatusOnly) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd answer(pair[0]), other(pair[1]);
  ASSERT_TRUE(SendStatusRequest(ours_.get(), answer.get()));
  const Result<RunRequest> run_request = ReceiveRunRequest(theirs_.get());
  ASSERT_TRUE(run_request) << run_request.error().message;
  EXPECT_TRUE(run_request->is_status);
  SendRaw({static_cast<char>(Kind::kOpen), 0, static_cast<char>(kProtocolVersion), 0, 0, 0, 0, 0, 0, 0, 3},
          answer.get());
  EXPECT_FALSE(ReceiveRunRequest(theirs_.get()));
}

TEST_F(OpenTest, TakesOnlySeqpacketConnections) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd stream(pair[0]), other(pair[1]);
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (const int fd : {stream.get(), null.get()}) {
    ASSERT_TRUE(SendRunRequest(ours_.get(), fd, sandbox::Start::kCold));
    EXPECT_FALSE(ReceiveRunRequest(theirs_.get()));
  }
  SendRaw("garbage");
  EXPECT_FALSE(ReceiveRunRequest(theirs_.get()));
  SendRaw(std::string(1000, 'x'), null.get());
  EXPECT_FALSE(ReceiveRunRequest(theirs_.get()));
  const Result<RunRequest> nothing = ReceiveRunRequest(theirs_.get());
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().errno_value, EAGAIN);
}

TEST_F(OpenTest, AnotherVersionIsToldSo) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd run(pair[0]), other(pair[1]);
  SendRaw({static_cast<char>(Kind::kOpen), 0, 99, 0, 0, 0, 0, 0, 0, 0}, run.get());
  EXPECT_FALSE(ReceiveRunRequest(theirs_.get()));
  const Result<Frame> frame = Receive(other.get());
  ASSERT_TRUE(frame);
  EXPECT_NE(DecodeError(frame->body()).message.find("version " + std::to_string(kProtocolVersion)), std::string::npos);
}

}  // namespace
}  // namespace caisson::launcher
