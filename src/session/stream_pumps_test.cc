#include "session/stream_pumps.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace caisson::session {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    out.Reset(ends[0]);
    in.Reset(ends[1]);
  }
  UniqueFd out, in;
};

std::string ReadAll(const UniqueFd& fd) {
  std::string text;
  char buffer[65536];
  for (ssize_t count = 0; (count = ::read(fd.get(), buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(count));
  return text;
}

bool AtEnd(const UniqueFd& fd) {
  char byte = 0;
  return ::read(fd.get(), &byte, 1) == 0;
}

class Pumps : public ::testing::Test {
 protected:
  std::unique_ptr<OutputPump> Make() {
    OutputPump::Callbacks callbacks;
    callbacks.on_bytes = [this](std::string_view bytes) { seen_ += bytes; };
    callbacks.on_end = [this] { ended_ = true; };
    callbacks.on_gap = [this](uint64_t, int64_t missing) { missed_ += missing; };
    return std::make_unique<OutputPump>(reactor_, std::move(source_.out), std::move(callbacks));
  }
  // As much as the pipe takes; 0 when it is full.
  size_t Produce(char letter) {
    const std::string text(65536, letter);
    const ssize_t count = ::write(source_.in.get(), text.data(), text.size());
    return count < 0 ? 0 : static_cast<size_t>(count);
  }
  void Turn(int times = 4) {
    for (int i = 0; i < times; ++i) reactor_.Turn(0);
  }

  Reactor reactor_;
  Pipe source_;
  std::string seen_;
  bool ended_ = false;
  int64_t missed_ = 0;
};

TEST_F(Pumps, APatientReaderSlowsTheCommandAndMissesNothing) {
  const auto pump = Make();
  Pipe reader;
  pump->AddReader(1, std::move(reader.in), true);
  size_t produced = 0;
  for (int i = 0; i < 100; ++i) {
    produced += Produce('a');
    Turn();
  }
  EXPECT_LT(produced, size_t{700} << 10) << "the command was not slowed";
  std::string read = ReadAll(reader.out);
  for (int i = 0; i < 100; ++i) {
    Turn();
    read += ReadAll(reader.out);
  }
  pump->CommandEnded();
  Turn();
  read += ReadAll(reader.out);
  EXPECT_EQ(read.size(), produced);
  EXPECT_EQ(missed_, 0);
  EXPECT_TRUE(AtEnd(reader.out)) << "the end of the command ends the reader's stream";
  EXPECT_FALSE(ended_) << "but not the stream itself, which processes left behind still have";
}

TEST_F(Pumps, AnotherReaderMissesBytesAndIsTold) {
  const auto pump = Make();
  Pipe reader;
  pump->AddReader(1, std::move(reader.in), false);
  size_t produced = 0;
  while (produced < (size_t{3} << 20)) {
    produced += Produce('b');
    Turn(1);
  }
  std::string read;
  for (int i = 0; i < 200; ++i) {
    read += ReadAll(reader.out);
    Turn();
  }
  EXPECT_GT(missed_, 0);
  EXPECT_EQ(read.size() + static_cast<size_t>(missed_), produced);
  EXPECT_EQ(seen_.size(), produced);
}

TEST_F(Pumps, ALateReaderGetsWhatIsKept) {
  const auto pump = Make();
  ASSERT_EQ(::write(source_.in.get(), "early", 5), 5);
  Turn();
  source_.in.Reset();
  Turn();
  EXPECT_TRUE(ended_);
  pump->CommandEnded();
  Pipe reader;
  EXPECT_EQ(pump->AddReader(7, std::move(reader.in), false), 0);
  EXPECT_EQ(ReadAll(reader.out), "early");
  EXPECT_TRUE(AtEnd(reader.out));
}

TEST_F(Pumps, AReaderThatGoesAwayFreesTheCommand) {
  const auto pump = Make();
  {
    Pipe reader;
    pump->AddReader(1, std::move(reader.in), true);
    for (int i = 0; i < 50; ++i) {
      Produce('c');
      Turn();
    }
  }
  Turn();
  EXPECT_FALSE(pump->has_readers());
  const size_t before = seen_.size();
  for (int i = 0; i < 50; ++i) {
    Produce('c');
    Turn();
  }
  EXPECT_GT(seen_.size(), before + (size_t{1} << 20));
}

TEST_F(Pumps, InputEndsWithoutATerminalAndStaysWithOne) {
  for (const bool terminal : {false, true}) {
    Pipe command, client;
    InputPump pump(reactor_, std::move(command.in), terminal, nullptr);
    pump.SetSource(std::move(client.out));
    ASSERT_EQ(::write(client.in.get(), "typed", 5), 5);
    Turn();
    EXPECT_EQ(ReadAll(command.out), "typed");
    client.in.Reset();
    Turn();
    EXPECT_EQ(AtEnd(command.out), !terminal);
    Pipe second;
    pump.SetSource(std::move(second.out));
    ASSERT_EQ(::write(second.in.get(), "more", 4), 4);
    Turn();
    pump.TypeEnd();
    EXPECT_EQ(ReadAll(command.out), terminal ? "more\x04" : "");
  }
}

}  // namespace
}  // namespace caisson::session
