// Commands one at a time: what they receive, how they end, and how a caller reaches them while they run.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/runtime/runtime_fixture.h"

namespace caisson::runtime {
namespace {

class CommandsTest : public RuntimeTest {};

TEST_F(CommandsTest, SaysHowItStarted) {
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->isolation().start, name() == "parked" || name() == "zygote" ? name() : "cold");
  EXPECT_FALSE(run->isolation().runtime.empty());
}

TEST_F(CommandsTest, ManyInOneRun) {
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  for (int i = 0; i < 200; ++i) {
    Command command = Shell("printf '%s %s ' \"$0\" \"$OWN\"; pwd; echo $N >> /scratch/all; exit $((N % 7))");
    command.argv.push_back("argument " + std::to_string(i));
    command.env = {{"N", std::to_string(i)}, {"OWN", "value " + std::to_string(i)}};
    command.cwd = i % 2 == 0 ? "/scratch" : "/tmp";
    const CommandOutcome outcome = Execute(*run, command);
    ASSERT_EQ(outcome.ending, Ending::kExited);
    ASSERT_EQ(outcome.exit_code, i % 7);
    ASSERT_EQ(outcome.stdout_stream.head,
              "argument " + std::to_string(i) + " value " + std::to_string(i) + " " + command.cwd + "\n");
    ASSERT_FALSE(outcome.left_processes);
  }
  EXPECT_EQ(Execute(*run, Shell("wc -l < /scratch/all")).stdout_stream.head, "200\n");
}

TEST_F(CommandsTest, AnInterpreterServesOneCommandAfterTheOther) {
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  for (int i = 0; i < 5; ++i) {
    Command command = Python("import os, sys; print(os.environ['N'], sys.argv[1:], os.getcwd())");
    command.argv.push_back("argument " + std::to_string(i));
    command.env = {{"N", std::to_string(i)}};
    command.cwd = "/scratch";
    EXPECT_EQ(Execute(*run, command).stdout_stream.head,
              std::to_string(i) + " ['argument " + std::to_string(i) + "'] /scratch\n");
    EXPECT_EQ(Execute(*run, Shell("echo between")).stdout_stream.head, "between\n");
  }
}

// The next command finds no data of an earlier one, even when both are forked from the same process. The search looks
// for the inverted bytes, so that it does not find itself.
TEST_F(CommandsTest, CommandsDoNotFindEachOthersVariables) {
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  const Command search = Python(R"(
import os
needle, inverted = bytes([0xae]) * 40, bytes(255 - i for i in range(256))
found = searched = 0
memory = os.open('/proc/self/mem', os.O_RDONLY)
for line in open('/proc/self/maps').read().splitlines():
    span, rights = line.split()[:2]
    begin, end = (int(number, 16) for number in span.split('-'))
    while rights[0] == 'r' and '[v' not in line and begin < end and not found:
        try: chunk = os.pread(memory, min(end - begin, 1 << 16), begin)
        except OSError: break
        found = chunk.translate(inverted).count(needle)
        searched += len(chunk)
        begin += 60000
print(found > 0, searched > 1 << 20)
)");
  Command first = Python("print('first')");
  first.env = {{"SECRET", std::string(80, 'Q')}};
  EXPECT_EQ(Execute(*run, first).stdout_stream.head, "first\n");
  EXPECT_EQ(Execute(*run, search).stdout_stream.head, "False True\n");
  Command control = search;
  control.env = first.env;
  const CommandOutcome outcome = Execute(*run, control);
  EXPECT_EQ(outcome.stdout_stream.head, "True True\n") << outcome.stderr_stream.head;
}

TEST_F(CommandsTest, ProcessesEndWithTheirCommand) {
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  const std::string mark = UniqueMark();
  const CommandOutcome first = Execute(*run, Shell("echo kept > /scratch/f; sleep " + mark + " & echo first"));
  EXPECT_EQ(first.stdout_stream.head, "first\n");
  EXPECT_TRUE(first.left_processes);
  EXPECT_EQ(CountMarked(mark), 0);
  EXPECT_EQ(Execute(*run, Shell("cat /scratch/f")).stdout_stream.head, "kept\n");
}

TEST_F(CommandsTest, ManyArgumentsAndLongOnes) {
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  Command command = Shell("echo $# ${#1}");
  command.argv.emplace_back("zero");
  command.argv.emplace_back(100'000, 'a');
  for (int i = 0; i < 9'999; ++i) command.argv.push_back("argument " + std::to_string(i));
  EXPECT_EQ(Execute(*run, command).stdout_stream.head, "10000 100000\n");
  // An argument that is longer than the kernel accepts is the command's fault; the run continues.
  command.argv.emplace_back(300'000, 'a');
  const CommandOutcome too_long = Execute(*run, command);
  EXPECT_EQ(too_long.ending, Ending::kNotExecutable);
  EXPECT_EQ(too_long.exec_errno, E2BIG);
  for (int i = 0; i < 70; ++i) command.argv.emplace_back(100'000, 'a');
  EXPECT_EQ(Execute(*run, command).exec_errno, E2BIG);
  EXPECT_EQ(Execute(*run, Shell("echo on")).stdout_stream.head, "on\n");
}

TEST_F(CommandsTest, WhatCannotBeExecutedSaysWhy) {
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  ASSERT_EQ(Execute(*run, Shell("echo text > /scratch/plain; mkdir /scratch/d")).exit_code, 0);
  const std::pair<const char*, int> cases[] = {{"/no/such/program", ENOENT},
                                               {"no-such-program", ENOENT},
                                               {"/scratch/plain", EACCES},
                                               {"/scratch/d", EACCES},
                                               {"/scratch/plain/x", ENOTDIR}};
  for (const auto& [program, error] : cases) {
    const CommandOutcome outcome = Execute(*run, {{program}, {}});
    EXPECT_EQ(outcome.ending, Ending::kNotExecutable) << program;
    EXPECT_EQ(outcome.exec_errno, error == ENOTDIR ? ENOENT : error) << program;
  }
  Command lost = Shell("true");
  lost.cwd = "/no/such/place";
  EXPECT_EQ(Execute(*run, lost).exec_errno, ENOENT);
  const Result<CommandOutcome> unnamed = run->Execute({{}, {}}, CommandIo::Capture(), Within(1000));
  ASSERT_FALSE(unnamed);
  EXPECT_EQ(unnamed.error().kind, ErrorKind::kInvalid);
}

TEST_F(CommandsTest, InputIsTheCommandsOwn) {
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(Execute(*run, Shell("cat"), CommandIo::Capture("some\n")).stdout_stream.head, "some\n");
  EXPECT_EQ(Execute(*run, Shell("cat; echo end")).stdout_stream.head, "end\n");
  EXPECT_EQ(Execute(*run, Shell("cat; echo end"), CommandIo::Capture("")).stdout_stream.head, "end\n");
  const std::string much(500'000, 'm');
  EXPECT_EQ(Execute(*run, Shell("wc -c"), CommandIo::Capture(much)).stdout_stream.head, "500000\n");
  EXPECT_EQ(Execute(*run, Shell("head -c 3"), CommandIo::Capture(much)).stdout_stream.head, "mmm");
  EXPECT_EQ(Execute(*run, Shell("exec <&-; echo closed"), CommandIo::Capture(much)).stdout_stream.head, "closed\n");
}

TEST_F(CommandsTest, StreamsAreApartAndWhole) {
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  const CommandOutcome outcome =
      Execute(*run, Shell("head -c 300000 /dev/zero | tr '\\0' o; head -c 300000 /dev/zero | tr '\\0' e >&2"));
  EXPECT_EQ(outcome.stdout_stream.head + outcome.stdout_stream.tail, std::string(300'000, 'o'));
  EXPECT_EQ(outcome.stderr_stream.head + outcome.stderr_stream.tail, std::string(300'000, 'e'));
  EXPECT_EQ(outcome.usage.output_bytes, 600'000);
  EXPECT_EQ(Execute(*run, Shell("echo again > /dev/stdout")).stdout_stream.head, "again\n");
  EXPECT_EQ(Execute(*run, Shell("exec >&- 2>&-; sleep 0.2; exit 3")).exit_code, 3);
}

class OwnPipe {
 public:
  OwnPipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_ = UniqueFd(ends[0]);
    write_ = UniqueFd(ends[1]);
  }
  void Fill(const std::string& text) {
    EXPECT_EQ(::write(write_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    write_.Reset();
  }
  std::string Drain() {
    write_.Reset();
    std::string text;
    char chunk[4096];
    for (ssize_t size; (size = ::read(read_.get(), chunk, sizeof(chunk))) > 0;)
      text.append(chunk, static_cast<size_t>(size));
    return text;
  }
  int read() const { return read_.get(); }
  int write() const { return write_.get(); }

 private:
  UniqueFd read_, write_;
};

TEST_F(CommandsTest, DescriptorsAreChosenForEachCommand) {
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  for (int i = 0; i < 3; ++i) {
    OwnPipe input, output, error;
    input.Fill("in " + std::to_string(i));
    const CommandOutcome outcome = Execute(*run, Shell("cat; echo bad >&2; exit 4"),
                                           CommandIo::Descriptors(input.read(), output.write(), error.write()));
    EXPECT_EQ(outcome.exit_code, 4);
    EXPECT_EQ(outcome.stdout_stream.head, "");
    EXPECT_EQ(output.Drain(), "in " + std::to_string(i));
    EXPECT_EQ(error.Drain(), "bad\n");
  }
  // One descriptor for both streams, and no descriptor at all.
  OwnPipe both;
  EXPECT_EQ(
      Execute(*run, Shell("echo a; echo b >&2"), CommandIo::Descriptors(-1, both.write(), both.write())).exit_code, 0);
  const std::string text = both.Drain();
  EXPECT_TRUE(text == "a\nb\n" || text == "b\na\n") << text;
  EXPECT_EQ(Execute(*run, Shell("cat; echo lost"), CommandIo::Descriptors(-1, -1, -1)).exit_code, 0);
  EXPECT_EQ(Execute(*run, Shell("echo captured")).stdout_stream.head, "captured\n");
}

TEST_F(CommandsTest, TerminalsAreChosenForEachCommand) {
  CAISSON_NEEDS(kTerminal);
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  for (int i = 0; i < 3; ++i) {
    OwnPipe output;
    const CommandOutcome outcome =
        Execute(*run, Shell("test -t 0 && test -t 1 && test -t 2 && echo yes > /dev/tty && echo > $(tty) && tty"),
                CommandIo::Terminal(-1, output.write()));
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(output.Drain(), "yes\r\n\r\n/dev/pts/0\r\n");
    EXPECT_EQ(Execute(*run, Shell("test -t 0 || echo none")).stdout_stream.head, "none\n");
  }
}

// The command writes each line only after the caller saw the one before it, so no line can have waited for the end.
TEST_F(CommandsTest, OutputIsToldAsItComesAndSignalsArePassedOn) {
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  const Result<StopSource> source = StopSource::Make();
  ASSERT_TRUE(source);
  std::string told, told_error;
  int seen = 0;
  ExecuteOptions options = Within(60'000);
  options.stop = &*source;
  const auto on_output = [&](OutputStream stream, std::string_view bytes) {
    (stream == OutputStream::kStdout ? told : told_error).append(bytes);
    if (stream != OutputStream::kStdout || told.back() != '\n' || seen == 3) return;
    ++seen;
    source->Signal(SIGUSR1);
  };
  const CommandOutcome outcome =
      Execute(*run,
              Shell("trap 'n=$((n+1)); echo line $n; echo error $n >&2' USR1; echo line 0; while [ \"$n\" != 3 ]; do "
                    "sleep 0.01; done"),
              CommandIo::Capture(std::nullopt, on_output), options);
  EXPECT_EQ(outcome.ending, Ending::kExited);
  EXPECT_EQ(told, "line 0\nline 1\nline 2\nline 3\n");
  EXPECT_EQ(told, outcome.stdout_stream.head);
  EXPECT_EQ(told_error, outcome.stderr_stream.head);
}

TEST_F(CommandsTest, ADeadlySignalHasItsGrace) {
  for (const bool obeyed : {true, false}) {
    const StartedRun run = Start();
    ASSERT_NE(run, nullptr);
    const Result<StopSource> source = StopSource::Make();
    ASSERT_TRUE(source);
    ExecuteOptions options = Within(60'000);
    options.stop = &*source;
    options.signal_grace_ms = obeyed ? 30'000 : 300;
    const auto on_output = [&](OutputStream, std::string_view) { source->Signal(SIGTERM); };
    const std::string trap = obeyed ? "trap 'exit 9' TERM" : "trap '' TERM";
    const CommandOutcome outcome = Execute(*run, Shell(trap + "; echo up; while :; do sleep 0.01; done"),
                                           CommandIo::Capture(std::nullopt, on_output), options);
    EXPECT_EQ(outcome.ending, obeyed ? Ending::kExited : Ending::kCancelled);
    EXPECT_EQ(outcome.exit_code, obeyed ? 9 : 128 + SIGKILL);
    EXPECT_LT(outcome.duration_ms, 25'000);
  }
}

TEST_F(CommandsTest, AStopCancelsAndStays) {
  StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  const Result<StopSource> source = StopSource::Make();
  ASSERT_TRUE(source);
  ExecuteOptions options = Within(60'000);
  options.stop = &*source;
  options.signal_grace_ms = 50'000;
  EXPECT_EQ(Execute(*run, Shell("echo kept > /scratch/f"), CommandIo::Capture(), options).exit_code, 0);
  const auto on_output = [&](OutputStream, std::string_view) { source->Stop(); };
  const CommandOutcome outcome =
      Execute(*run, Shell("trap '' TERM; echo up; sleep 300"), CommandIo::Capture(std::nullopt, on_output), options);
  EXPECT_EQ(outcome.ending, Ending::kCancelled);
  EXPECT_LT(outcome.duration_ms, 40'000);
  const Result<Collection> collection = run->Collect({"/scratch/*"});
  ASSERT_TRUE(collection) << collection.error().message;
  ASSERT_EQ(collection->files.size(), 1U);
  EXPECT_EQ(collection->files[0].bytes, "kept\n");
  EXPECT_FALSE(run->Execute(Shell("true"), CommandIo::Capture(), Within(1000)));
  run = Start();
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(Execute(*run, Shell("sleep 300"), CommandIo::Capture(), options).ending, Ending::kCancelled);
}

// A slow reader must not keep the supervisor from its clock, and still receives all output.
TEST_F(CommandsTest, ASlowReaderStopsNoClock) {
  CAISSON_NEEDS(kClockBesideSink);
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  size_t told = 0;
  bool dawdled = false;
  const auto on_output = [&](OutputStream, std::string_view bytes) {
    told += bytes.size();
    if (!std::exchange(dawdled, true)) ::usleep(3'000'000);  // the supervisor must not wait for this
  };
  const CommandOutcome outcome = Execute(*run, Shell("head -c 900000 /dev/zero; sleep 300"),
                                         CommandIo::Capture(std::nullopt, on_output), Within(300));
  EXPECT_EQ(outcome.ending, Ending::kTimeout);
  EXPECT_LT(outcome.duration_ms, 3'000);
  EXPECT_EQ(told, outcome.stdout_stream.total_bytes);
}

TEST_F(CommandsTest, ManyThreadsAtOnce) {
  CAISSON_NEEDS(kManyThreads);
  std::vector<std::thread> threads;
  std::vector<std::string> outputs(16);
  for (size_t i = 0; i < outputs.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < 3; ++turn) {
        Result<StartedRun> run = runtime_->Start(Plan());
        if (!run) {
          outputs[i] += run.error().message;
          continue;
        }
        const Result<CommandOutcome> outcome =
            (*run)->Execute(Shell("echo " + std::to_string(i)), CommandIo::Capture(), Within(60'000));
        outputs[i] += outcome ? outcome->stdout_stream.head : outcome.error().message;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string line = std::to_string(i) + "\n";
    EXPECT_EQ(outputs[i], line + line + line);
  }
}

}  // namespace
}  // namespace caisson::runtime
