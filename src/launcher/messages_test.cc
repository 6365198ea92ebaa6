#include "launcher/messages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

namespace caisson::launcher {
namespace {

UniqueFd OpenNull() { return UniqueFd(::open("/dev/null", O_PATH | O_CLOEXEC)); }

sandbox::Mount MakeMount(const std::string& target) { return {OpenNull(), "/dev/null", target, {}}; }

StartMessage Smallest() {
  StartMessage message;
  sandbox::Spec& spec = message.spec;
  spec.seccomp = sandbox::FindSeccompProgram("balanced");
  spec.limits = {1 << 20, 1, 10, 1, 4096, 16};
  spec.commands.push_back({{"true"}, {}, "/", {}});
  return message;
}

StartMessage Everything() {
  StartMessage message = Smallest();
  sandbox::Spec& spec = message.spec;
  spec.workspace_files = {{"a/b.txt", std::string("\0\xff", 2), 0644, sandbox::FileKind::kRegular},
                          {"a/link", "../../etc/passwd", 0644, sandbox::FileKind::kSymlink},
                          {"empty", "", 0755, sandbox::FileKind::kDirectory}};
  spec.workspace = MakeMount("/workspace");
  spec.workspace->access = sandbox::Access::kCopyOnWrite;
  spec.workspace_files_writable = true;
  spec.mounts.push_back(MakeMount("/data"));
  spec.mounts.push_back(MakeMount("/opt/more"));
  spec.system_paths = {"/usr", "/bin"};
  spec.etc_paths = {"/etc/ld.so.cache"};
  spec.devices = {"null", "urandom"};
  spec.writable_tmp = false;
  spec.masked_files = {"kcore", "sys/kernel/x"};
  spec.masked_directories = {"acpi"};
  spec.proc_pids_only = spec.share_ipc = spec.share_time = true;
  spec.hostname = "elsewhere";
  spec.limits = {1, 2, 3, 4, 5, 6};
  spec.seccomp_watched = sandbox::FindSeccompProgram("balanced-watched");
  spec.allowed_calls = {0, 511};
  spec.denied_calls = {101};
  spec.commands.push_back({{"/bin/cat", ""}, {"A=1", "B="}, "/workspace", std::string("in\0put", 6)});
  spec.stdio = sandbox::Stdio::kTerminal;
  spec.allow_watched_limits = true;
  spec.landlock = false;
  spec.allow_no_landlock = true;
  spec.ignored_write_components = {"__pycache__"};
  for (int i = 0; i < 3; ++i) message.streams.push_back(OpenNull());
  return message;
}

std::vector<UniqueFd> Copies(const std::vector<int>& fds) {
  std::vector<UniqueFd> copies;
  for (const int fd : fds) copies.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  return copies;
}

TEST(StartMessageTest, ComesBackAsItWas) {
  const StartMessage sent = Everything();
  const Result<Encoded> encoded = Encode(sent);
  ASSERT_TRUE(encoded) << encoded.error().message;
  EXPECT_EQ(encoded->fds.size(), 6U);
  const Result<StartMessage> got = DecodeStart(encoded->bytes, Copies(encoded->fds));
  ASSERT_TRUE(got) << got.error().message;
  // One encoding for one message, so equal bytes are equal fields; a few are looked at to know that they are there.
  const Result<Encoded> again = Encode(*got);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->bytes, encoded->bytes);
  const sandbox::Spec& spec = got->spec;
  EXPECT_EQ(spec.workspace_files[0].bytes, std::string("\0\xff", 2));
  EXPECT_EQ(spec.workspace_files[1].kind, sandbox::FileKind::kSymlink);
  EXPECT_EQ(spec.workspace->access, sandbox::Access::kCopyOnWrite);
  EXPECT_EQ(spec.mounts[1].target, "/opt/more");
  EXPECT_FALSE(spec.writable_tmp);
  EXPECT_TRUE(spec.writable_shm);
  EXPECT_EQ(spec.limits.scratch_inodes, 6);
  EXPECT_STREQ(spec.seccomp_watched->name, "balanced-watched");
  EXPECT_EQ(spec.allowed_calls, (std::vector<int32_t>{0, 511}));
  EXPECT_EQ(spec.commands[1].stdin_bytes, std::string("in\0put", 6));
  EXPECT_EQ(spec.commands[0].stdin_bytes, std::nullopt);
  EXPECT_EQ(spec.stdio, sandbox::Stdio::kTerminal);
  EXPECT_FALSE(spec.landlock);
  EXPECT_FALSE(spec.mount_owner);
}

TEST(StartMessageTest, EveryTruncationIsRefused) {
  const StartMessage sent = Everything();
  const Result<Encoded> encoded = Encode(sent);
  ASSERT_TRUE(encoded);
  for (size_t size = 0; size < encoded->bytes.size(); ++size) {
    const Result<StartMessage> got =
        DecodeStart(std::string_view(encoded->bytes).substr(0, size), Copies(encoded->fds));
    ASSERT_FALSE(got) << size;
    EXPECT_EQ(got.error().kind, ErrorKind::kInvalid);
  }
}

TEST(StartMessageTest, NothingMayBeLeftOver) {
  const StartMessage sent = Smallest();
  const Result<Encoded> encoded = Encode(sent);
  ASSERT_TRUE(encoded);
  EXPECT_FALSE(DecodeStart(encoded->bytes + '\0', {}));
  std::vector<UniqueFd> one;
  one.push_back(OpenNull());
  const Result<StartMessage> got = DecodeStart(encoded->bytes, std::move(one));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().message, "start.end: 1 descriptors are left over");
}

TEST(StartMessageTest, AMissingDescriptorIsNamed) {
  const StartMessage sent = Everything();
  const Result<Encoded> encoded = Encode(sent);
  ASSERT_TRUE(encoded);
  std::vector<UniqueFd> fds = Copies(encoded->fds);
  fds.resize(2);
  const Result<StartMessage> got = DecodeStart(encoded->bytes, std::move(fds));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().message, "start.mounts[1].source: has no descriptor");
}

// What must not be spelled, and which field the refusal names.
TEST(StartMessageTest, WhatMayNotBeAskedFor) {
  struct Case {
    const char* field;
    std::function<void(sandbox::Spec&)> spoil;
  };
  const Case cases[] = {
      {"start.workspace_files[0].path",
       [](auto& spec) {
         spec.workspace_files = {{"../up", ""}};
       }},
      {"start.workspace_files[0].path",
       [](auto& spec) {
         spec.workspace_files = {{"/etc/x", ""}};
       }},
      {"start.workspace_files[0].path",
       [](auto& spec) {
         spec.workspace_files = {{"a//b", ""}};
       }},
      {"start.workspace_files[0].path",
       [](auto& spec) {
         spec.workspace_files = {{std::string("a\0b", 3), ""}};
       }},
      {"start.workspace_files[0].mode",
       [](auto& spec) {
         spec.workspace_files = {{"a", "", 04755}};
       }},
      {"start.workspace_files: link/x",
       [](auto& spec) {
         spec.workspace_files = {{"link/x", ""}, {"link", "/tmp", 0644, sandbox::FileKind::kSymlink}};
       }},
      {"start.workspace.target", [](auto& spec) { spec.workspace = MakeMount("/elsewhere"); }},
      {"start.mounts[0].target", [](auto& spec) { spec.mounts.push_back(MakeMount("/a/../b")); }},
      {"start.mounts[0].target", [](auto& spec) { spec.mounts.push_back(MakeMount("/")); }},
      {"start.mounts: the target /proc/x", [](auto& spec) { spec.mounts.push_back(MakeMount("/proc/x")); }},
      {"start.mounts: the target /usr/x",
       [](auto& spec) {
         spec.system_paths = {"/usr"};
         spec.mounts.push_back(MakeMount("/usr/x"));
       }},
      {"start.mounts[0].source",
       [](auto& spec) {
         spec.mounts.push_back(MakeMount("/data"));
         spec.mounts[0].source.Reset();
       }},
      {"start.system_paths[0].path", [](auto& spec) { spec.system_paths = {"/"}; }},
      {"start.etc_paths[0].path", [](auto& spec) { spec.etc_paths = {"/etc/../root"}; }},
      {"start.devices[0].name", [](auto& spec) { spec.devices = {"sda"}; }},
      {"start.devices[0].name", [](auto& spec) { spec.devices = {"../mem"}; }},
      {"start.masked_files[0].path", [](auto& spec) { spec.masked_files = {"../x"}; }},
      {"start.hostname", [](auto& spec) { spec.hostname = std::string(64, 'x'); }},
      {"start.memory_bytes", [](auto& spec) { spec.limits.memory_bytes = 0; }},
      {"start.processes", [](auto& spec) { spec.limits.processes = -1; }},
      {"start.scratch_bytes", [](auto& spec) { spec.limits.scratch_bytes = int64_t{1} << 51; }},
      {"start.output_bytes", [](auto& spec) { spec.limits.output_bytes = (int64_t{1} << 30) + 1; }},
      {"start.seccomp", [](auto& spec) { spec.seccomp = nullptr; }},
      {"start.allowed_calls[0].number", [](auto& spec) { spec.allowed_calls = {512}; }},
      {"start.denied_calls[0].number", [](auto& spec) { spec.denied_calls = {-1}; }},
      {"start.commands", [](auto& spec) { spec.commands.clear(); }},
      {"start.commands.argv", [](auto& spec) { spec.commands[0].argv.clear(); }},
      {"start.commands.argv", [](auto& spec) { spec.commands[0].argv = {""}; }},
      {"start.commands[0].argv[1].argument",
       [](auto& spec) { spec.commands[0].argv.push_back(std::string("a\0b", 3)); }},
      {"start.commands[0].cwd", [](auto& spec) { spec.commands[0].cwd = "relative"; }},
      {"start.streams", [](auto& spec) { spec.stdio = sandbox::Stdio::kPassThrough; }},
  };
  for (const Case& spoiled : cases) {
    StartMessage message = Smallest();
    spoiled.spoil(message.spec);
    const Result<Encoded> encoded = Encode(message);
    ASSERT_FALSE(encoded) << spoiled.field;
    EXPECT_EQ(encoded.error().message.rfind(spoiled.field, 0), 0U) << spoiled.field << " / " << encoded.error().message;
  }
}

// The same from a sender that does not check what it writes: one byte at a time is another.
TEST(StartMessageTest, AnyChangedByteIsRefusedOrMeansWhatItSays) {
  StartMessage sent = Everything();
  sent.spec.stdio = sandbox::Stdio::kCapture;
  sent.streams.clear();
  const Result<Encoded> encoded = Encode(sent);
  ASSERT_TRUE(encoded);
  size_t accepted = 0;
  for (size_t at = 0; at < encoded->bytes.size(); ++at) {
    std::string bytes = encoded->bytes;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x41);
    const Result<StartMessage> got = DecodeStart(bytes, Copies(encoded->fds));
    if (!got) continue;
    ++accepted;
    const Result<Encoded> again = Encode(*got);
    ASSERT_TRUE(again) << "accepted what cannot be written: " << again.error().message;
    EXPECT_EQ(again->bytes, bytes);
  }
  EXPECT_GT(accepted, 0U);
  EXPECT_LT(accepted, encoded->bytes.size());
}

TEST(StartMessageTest, AnUnknownFilterIsRefused) {
  const StartMessage sent = Smallest();
  const Result<Encoded> encoded = Encode(sent);
  ASSERT_TRUE(encoded);
  std::string bytes = encoded->bytes;
  bytes.replace(bytes.find("balanced"), 8, "balancee");
  const Result<StartMessage> got = DecodeStart(bytes, {});
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().message, "start.seccomp: there is no such filter");
}

Violation MakeViolation() {
  Violation violation;
  violation.violation_class = ViolationClass::kNetworkAccess;
  violation.reason = "net.connect";
  violation.confidence = Confidence::kObserved;
  violation.time_ms = 12;
  violation.pid = 7;
  violation.evidence = {{"address", std::string("192.0.2.1")}, {"port", int64_t{-80}}};
  violation.limit = 5;
  violation.suggestion = "none";
  return violation;
}

TEST(OutcomeTest, ComesBackAsItWas) {
  CommandOutcome outcome;
  outcome.ending = Ending::kNotExecutable;
  outcome.exit_code = 137;
  outcome.signal = 9;
  outcome.exec_errno = 2;
  outcome.duration_ms = 99;
  outcome.left_processes = true;
  outcome.stdout_stream = {"head", "tail", 1000, 992};
  outcome.stderr_stream = {std::string(1 << 20, 'e'), "", 1 << 20, 0};
  outcome.usage = {1, 2, 3, 4, 5, 6};
  outcome.violations = {MakeViolation(), MakeViolation()};
  outcome.violations_dropped = 8;
  const Result<Encoded> encoded = Encode(outcome);
  ASSERT_TRUE(encoded) << encoded.error().message;
  const Result<CommandOutcome> got = DecodeOutcome(encoded->bytes);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(Encode(*got)->bytes, encoded->bytes);
  EXPECT_EQ(got->ending, Ending::kNotExecutable);
  EXPECT_EQ(got->stderr_stream.head.size(), size_t{1} << 20);
  EXPECT_EQ(got->usage.throttled_ms, 6);
  EXPECT_EQ(got->violations[1].evidence, MakeViolation().evidence);
  EXPECT_EQ(got->violations_dropped, 8U);
  EXPECT_FALSE(DecodeOutcome(encoded->bytes.substr(1)));
  EXPECT_FALSE(DecodeOutcome(encoded->bytes + "x"));
}

TEST(OtherMessagesTest, ComeBackAsTheyWere) {
  ExecuteMessage execute{3, 1000, "budget_ms", false, 50, true, true};
  EXPECT_EQ(Encode(*DecodeExecute(Encode(execute)->bytes))->bytes, Encode(execute)->bytes);
  EXPECT_EQ(DecodeExecute(Encode(execute)->bytes)->timeout_name, "budget_ms");
  execute.timeout_ms = -1;
  EXPECT_EQ(Encode(execute).error().message.rfind("execute.timeout_ms", 0), 0U);

  EXPECT_EQ(DecodeCollect(Encode(CollectMessage{{"/scratch/**", ""}})->bytes)->globs,
            (std::vector<std::string>{"/scratch/**", ""}));

  sandbox::Isolation isolation;
  isolation.namespaces = {"user", "pid"};
  isolation.seccomp_profile = "balanced";
  isolation.landlock_abi = 6;
  isolation.cgroup_driver = sandbox::CgroupDriver::kHybrid;
  isolation.host_uid = 4'000'000'000;
  isolation.own_id_range = true;
  isolation.start = sandbox::Start::kInterpreter;
  isolation.degraded = {"cpu: not limited"};
  const Result<sandbox::Isolation> applied = DecodeIsolation(Encode(isolation)->bytes);
  ASSERT_TRUE(applied);
  EXPECT_EQ(applied->host_uid, 4'000'000'000U);
  EXPECT_EQ(applied->cgroup_driver, sandbox::CgroupDriver::kHybrid);
  EXPECT_EQ(Encode(*applied)->bytes, Encode(isolation)->bytes);

  StatusMessage status;
  status.pools.push_back({"parked", 1, 2, 3, 4, 5});
  status.interpreters_died = 6;
  const Result<StatusMessage> told = DecodeStatus(Encode(status)->bytes);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->pools.at(0).missed, 4U);
  EXPECT_EQ(Encode(*told)->bytes, Encode(status)->bytes);

  const Result<OutputMessage> output = DecodeOutput(Encode(OutputMessage{OutputStream::kStderr, "x\n"})->bytes);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->stream, OutputStream::kStderr);
  EXPECT_EQ(output->bytes, "x\n");

  const Result<Violation> violation = DecodeViolation(Encode(MakeViolation())->bytes);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->reason, "net.connect");

  const sandbox::Collected collected{{{"/scratch/a", std::string("\0", 1)}}, {"/scratch/b: a symbolic link"}};
  const Result<sandbox::Collected> files = DecodeCollected(Encode(collected)->bytes);
  ASSERT_TRUE(files);
  EXPECT_EQ(files->files[0].bytes, std::string("\0", 1));
  EXPECT_EQ(files->skipped, collected.skipped);
}

TEST(ErrorMessageTest, ComesBackOrSaysWhatIsWrong) {
  const Error error = DecodeError(Encode(Error{ErrorKind::kUnsupported, 38, "wall x"}).bytes);
  EXPECT_EQ(error.kind, ErrorKind::kUnsupported);
  EXPECT_EQ(error.errno_value, 38);
  EXPECT_EQ(error.message, "wall x");
  EXPECT_EQ(DecodeError(Encode(Error::Invalid(std::string(100'000, 'x'))).bytes).message.size(), 65'536U);
  EXPECT_EQ(DecodeError("\x09").message.rfind("error.kind", 0), 0U);
}

}  // namespace
}  // namespace caisson::launcher
