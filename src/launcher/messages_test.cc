#include "launcher/messages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

namespace caisson::launcher {
namespace {

UniqueFd OpenNull() { return UniqueFd(::open("/dev/null", O_PATH | O_CLOEXEC)); }

sandbox::Mount MakeMount(const std::string& target) { return {OpenNull(), "/dev/null", target, {}}; }

sandbox::Spec Smallest() {
  sandbox::Spec spec;
  spec.seccomp = sandbox::FindSeccompProgram("balanced");
  spec.limits = {1 << 20, 1, 10, 1, 4096, 16};
  return spec;
}

sandbox::RootImage MakeRoot() {
  using Kind = sandbox::RootEntryKind;
  return {UniqueFd(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
          "/store/root",
          {{"usr", Kind::kTree, ""}, {"bin", Kind::kLink, "usr/bin"}, {"etc", Kind::kMerged, ""}}};
}

sandbox::Spec Everything() {
  sandbox::Spec spec = Smallest();
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
  spec.probes = {{"syscall.numa", "", "numeric libraries"}, {"", "/var/cache/fontconfig", "fonts"}};
  spec.network = sandbox::Network{};
  spec.network->rules = {{true, "example.org", "class:x (example.org)"}, {false, "www.example.org", ""}};
  spec.network->addresses = {0xC0000207};
  spec.network->private_ranges = {"10.0.0.0/8"};
  spec.network->hosts = {{"a.example", "192.0.2.1"}};
  spec.root = MakeRoot();
  spec.network->host_ports = {5432};
  spec.allow_watched_limits = true;
  spec.landlock = false;
  spec.allow_no_landlock = true;
  spec.ignored_write_components = {"__pycache__"};
  return spec;
}

std::vector<UniqueFd> Copies(const std::vector<int>& fds) {
  std::vector<UniqueFd> copies;
  for (const int fd : fds) copies.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  return copies;
}

TEST(StartMessageTest, ComesBackAsItWas) {
  const sandbox::Spec sent = Everything();
  const Result<Encoded> encoded = EncodeStart(sent);
  ASSERT_TRUE(encoded) << encoded.error().message;
  EXPECT_EQ(encoded->fds.size(), 4U);
  const Result<sandbox::Spec> got = DecodeStart(encoded->bytes, Copies(encoded->fds));
  ASSERT_TRUE(got) << got.error().message;
  // Each message has exactly one encoding, so equal bytes mean equal fields. A few fields are compared as well, to show
  // that they are encoded at all.
  const Result<Encoded> again = EncodeStart(*got);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->bytes, encoded->bytes);
  const sandbox::Spec& spec = *got;
  EXPECT_EQ(spec.workspace_files[0].bytes, std::string("\0\xff", 2));
  EXPECT_EQ(spec.workspace_files[1].kind, sandbox::FileKind::kSymlink);
  EXPECT_EQ(spec.workspace->access, sandbox::Access::kCopyOnWrite);
  EXPECT_EQ(spec.mounts[1].target, "/opt/more");
  EXPECT_FALSE(spec.writable_tmp);
  EXPECT_TRUE(spec.writable_shm);
  EXPECT_EQ(spec.limits.scratch_inodes, 6);
  EXPECT_STREQ(spec.seccomp_watched->name, "balanced-watched");
  EXPECT_EQ(spec.allowed_calls, (std::vector<int32_t>{0, 511}));
  EXPECT_FALSE(spec.landlock);
  EXPECT_FALSE(spec.mount_owner);
  EXPECT_EQ(spec.root->entries[1].target, "usr/bin");
  EXPECT_EQ(spec.root->entries[2].kind, sandbox::RootEntryKind::kMerged);
  EXPECT_EQ(spec.network->rules[1].text, "www.example.org");
  EXPECT_EQ(spec.network->hosts[0].address, "192.0.2.1");
}

TEST(StartMessageTest, NetworksThatASandboxCannotHaveAreRefused) {
  for (const auto& [pool, bits] : {std::pair{0x7f000000U, 8}, std::pair{0xC6120001U, 15}, std::pair{0xE0000000U, 15}}) {
    sandbox::Spec spec = Smallest();
    spec.network = sandbox::Network{};
    spec.network->pool = pool;
    spec.network->pool_bits = static_cast<uint8_t>(bits);
    EXPECT_FALSE(EncodeStart(spec)) << pool;
  }
  sandbox::Spec spec = Smallest();
  spec.network = sandbox::Network{};
  spec.network->addresses = {0x7f000001};
  EXPECT_FALSE(EncodeStart(spec));
}

TEST(StartMessageTest, EveryTruncationIsRefused) {
  const sandbox::Spec sent = Everything();
  const Result<Encoded> encoded = EncodeStart(sent);
  ASSERT_TRUE(encoded);
  for (size_t size = 0; size < encoded->bytes.size(); ++size) {
    const Result<sandbox::Spec> got =
        DecodeStart(std::string_view(encoded->bytes).substr(0, size), Copies(encoded->fds));
    ASSERT_FALSE(got) << size;
    EXPECT_EQ(got.error().kind, ErrorKind::kInvalid);
  }
}

TEST(StartMessageTest, NothingMayBeLeftOver) {
  const sandbox::Spec sent = Smallest();
  const Result<Encoded> encoded = EncodeStart(sent);
  ASSERT_TRUE(encoded);
  EXPECT_FALSE(DecodeStart(encoded->bytes + '\0', {}));
  std::vector<UniqueFd> one;
  one.push_back(OpenNull());
  const Result<sandbox::Spec> got = DecodeStart(encoded->bytes, std::move(one));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().message, "start.end: 1 descriptors are left over");
}

TEST(StartMessageTest, AMissingDescriptorIsNamed) {
  const sandbox::Spec sent = Everything();
  const Result<Encoded> encoded = EncodeStart(sent);
  ASSERT_TRUE(encoded);
  std::vector<UniqueFd> fds = Copies(encoded->fds);
  fds.resize(2);
  const Result<sandbox::Spec> got = DecodeStart(encoded->bytes, std::move(fds));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().message, "start.mounts[1].source: has no descriptor");
}

// Specs that must be refused, and the field that each refusal names.
void SpoilRoot(sandbox::Spec& spec, sandbox::RootEntry entry) {
  spec.root = MakeRoot();
  spec.root->entries = {std::move(entry)};
}

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
      {"start.seccomp", [](auto& spec) { spec.seccomp = nullptr; }},
      {"start.allowed_calls[0].number", [](auto& spec) { spec.allowed_calls = {512}; }},
      {"start.root.entries[0].name",
       [](auto& spec) {
         SpoilRoot(spec, {"", sandbox::RootEntryKind::kTree, ""});
       }},
      {"start.root.entries[0].name",
       [](auto& spec) {
         SpoilRoot(spec, {"..", sandbox::RootEntryKind::kTree, ""});
       }},
      {"start.root.entries[0].name",
       [](auto& spec) {
         SpoilRoot(spec, {"a/b", sandbox::RootEntryKind::kTree, ""});
       }},
      {"start.root.entries[0].name",
       [](auto& spec) {
         SpoilRoot(spec, {"proc", sandbox::RootEntryKind::kTree, ""});
       }},
      {"start.root.entries[0].name",
       [](auto& spec) {
         SpoilRoot(spec, {"dev", sandbox::RootEntryKind::kTree, ""});
       }},
      {"start.root.entries[0].name",
       [](auto& spec) {
         SpoilRoot(spec, {"scratch", sandbox::RootEntryKind::kTree, ""});
       }},
      {"start.root.entries[0].name",
       [](auto& spec) {
         SpoilRoot(spec, {"workspace", sandbox::RootEntryKind::kTree, ""});
       }},
      {"start.root.entries[0].name",
       [](auto& spec) {
         SpoilRoot(spec, {"tmp", sandbox::RootEntryKind::kTree, ""});
       }},
      {"start.root.entries[0].name",
       [](auto& spec) {
         SpoilRoot(spec, {"run", sandbox::RootEntryKind::kTree, ""});
       }},
      {"start.root.entries[0].name",
       [](auto& spec) {
         SpoilRoot(spec, {".cover", sandbox::RootEntryKind::kTree, ""});
       }},
      {"start.root.entries: etc and var",
       [](auto& spec) {
         SpoilRoot(spec, {"etc", sandbox::RootEntryKind::kTree, ""});
       }},
      {"start.root.entries: etc and var",
       [](auto& spec) {
         SpoilRoot(spec, {"usr", sandbox::RootEntryKind::kMerged, ""});
       }},
      {"start.root.entries: a link",
       [](auto& spec) {
         SpoilRoot(spec, {"bin", sandbox::RootEntryKind::kLink, ""});
       }},
      {"start.root.entries: a link",
       [](auto& spec) {
         SpoilRoot(spec, {"usr", sandbox::RootEntryKind::kTree, "/"});
       }},
      {"start.root.source",
       [](auto& spec) {
         spec.root = MakeRoot();
         spec.root->source.Reset();
       }},
      {"start.root.source_path",
       [](auto& spec) {
         spec.root = MakeRoot();
         spec.root->source_path = "relative";
       }},
      {"start.denied_calls[0].number", [](auto& spec) { spec.denied_calls = {-1}; }},
  };
  for (const Case& spoiled : cases) {
    sandbox::Spec spec = Smallest();
    spoiled.spoil(spec);
    const Result<Encoded> encoded = EncodeStart(spec);
    ASSERT_FALSE(encoded) << spoiled.field;
    EXPECT_EQ(encoded.error().message.rfind(spoiled.field, 0), 0U) << spoiled.field << " / " << encoded.error().message;
  }
}

// The same for a sender that does not check what it writes: the test changes one byte at a time.
TEST(StartMessageTest, AnyChangedByteIsRefusedOrMeansWhatItSays) {
  const sandbox::Spec sent = Everything();
  const Result<Encoded> encoded = EncodeStart(sent);
  ASSERT_TRUE(encoded);
  size_t accepted = 0;
  for (size_t at = 0; at < encoded->bytes.size(); ++at) {
    std::string bytes = encoded->bytes;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x41);
    const Result<sandbox::Spec> got = DecodeStart(bytes, Copies(encoded->fds));
    if (!got) continue;
    ++accepted;
    const Result<Encoded> again = EncodeStart(*got);
    ASSERT_TRUE(again) << "accepted what cannot be written: " << again.error().message;
    EXPECT_EQ(again->bytes, bytes);
  }
  EXPECT_GT(accepted, 0U);
  EXPECT_LT(accepted, encoded->bytes.size());
}

TEST(StartMessageTest, AnUnknownFilterIsRefused) {
  const sandbox::Spec sent = Smallest();
  const Result<Encoded> encoded = EncodeStart(sent);
  ASSERT_TRUE(encoded);
  std::string bytes = encoded->bytes;
  bytes.replace(bytes.find("balanced"), 8, "balancee");
  const Result<sandbox::Spec> got = DecodeStart(bytes, {});
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().message, "start.seccomp: there is no such filter");
}

ExecuteMessage Captured() {
  ExecuteMessage message;
  message.command = {{"/bin/cat", ""}, {"A=1", "B="}, "/workspace"};
  message.input = std::string("in\0put", 6);
  message.timeout_ms = 1000;
  message.timeout_name = "budget_ms";
  message.last = message.wants_output = message.wants_violations = true;
  message.signal_grace_ms = 50;
  return message;
}

ExecuteMessage Joined(CommandIo::Kind io) {
  ExecuteMessage message;
  message.command = {{"sh"}, {}, "/"};
  message.io = io;
  message.stdin_fd = OpenNull();
  message.stdout_fd = OpenNull();
  return message;
}

TEST(ExecuteMessageTest, ComesBackAsItWas) {
  const ExecuteMessage sent = Captured();
  const Result<Encoded> encoded = Encode(sent);
  ASSERT_TRUE(encoded) << encoded.error().message;
  const Result<ExecuteMessage> got = DecodeExecute(encoded->bytes, {});
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(Encode(*got)->bytes, encoded->bytes);
  EXPECT_EQ(got->command.argv, sent.command.argv);
  EXPECT_EQ(got->command.env, sent.command.env);
  EXPECT_EQ(got->command.cwd, "/workspace");
  EXPECT_EQ(got->input, std::string("in\0put", 6));
  EXPECT_EQ(got->timeout_name, "budget_ms");
  EXPECT_FALSE(got->stdin_fd || got->stdout_fd || got->stderr_fd);
  for (size_t size = 0; size < encoded->bytes.size(); ++size)
    EXPECT_FALSE(DecodeExecute(std::string_view(encoded->bytes).substr(0, size), {})) << size;
}

TEST(ExecuteMessageTest, DescriptorsStayInTheirPlaces) {
  ExecuteMessage sent = Joined(CommandIo::Kind::kDescriptors);
  sent.stdin_fd.reset();
  sent.stderr_fd = OpenNull();
  const Result<Encoded> encoded = Encode(sent);
  ASSERT_TRUE(encoded) << encoded.error().message;
  EXPECT_EQ(encoded->fds.size(), 2U);
  const Result<ExecuteMessage> got = DecodeExecute(encoded->bytes, Copies(encoded->fds));
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_FALSE(got->stdin_fd.has_value());
  EXPECT_TRUE(got->stdout_fd->valid() && got->stderr_fd->valid());
  EXPECT_EQ(DecodeExecute(encoded->bytes, {}).error().message, "execute.stdout.descriptor: has no descriptor");
  std::vector<UniqueFd> more = Copies(encoded->fds);
  more.push_back(OpenNull());
  EXPECT_EQ(DecodeExecute(encoded->bytes, std::move(more)).error().message, "execute.end: 1 descriptors are left over");
}

TEST(ExecuteMessageTest, WhatMayNotBeAskedFor) {
  struct Case {
    const char* field;
    std::function<void(ExecuteMessage&)> spoil;
  };
  const Case cases[] = {
      {"execute.argv", [](auto& message) { message.command.argv.clear(); }},
      {"execute.argv", [](auto& message) { message.command.argv = {""}; }},
      {"execute.argv[1].argument", [](auto& message) { message.command.argv[1] = std::string("a\0b", 3); }},
      {"execute.env[0].variable", [](auto& message) { message.command.env[0] = std::string("a\0b", 3); }},
      {"execute.cwd", [](auto& message) { message.command.cwd = "relative"; }},
      {"execute.timeout_ms", [](auto& message) { message.timeout_ms = -1; }},
      {"execute.io", [](auto& message) { message.stdout_fd = OpenNull(); }},
      {"execute.io", [](auto& message) { message.io = CommandIo::Kind::kDescriptors; }},
      {"execute.stdout.descriptor",
       [](auto& message) {
         message = Joined(CommandIo::Kind::kTerminal);
         message.stdout_fd->Reset();
       }},
  };
  for (const Case& spoiled : cases) {
    ExecuteMessage message = Captured();
    spoiled.spoil(message);
    const Result<Encoded> encoded = Encode(message);
    ASSERT_FALSE(encoded) << spoiled.field;
    EXPECT_EQ(encoded.error().message.rfind(spoiled.field, 0), 0U) << spoiled.field << " / " << encoded.error().message;
  }
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
  outcome.usage = {1, 2, 3, 4, 5, 6, 7};
  outcome.violations = {MakeViolation(), MakeViolation()};
  outcome.violations[1].count = 8;
  outcome.notices = {{"syscall.numa", "libraries ask", 3, 12, 7, MakeViolation().evidence}};
  const Result<Encoded> encoded = Encode(outcome);
  ASSERT_TRUE(encoded) << encoded.error().message;
  const Result<CommandOutcome> got = DecodeOutcome(encoded->bytes);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(Encode(*got)->bytes, encoded->bytes);
  EXPECT_EQ(got->ending, Ending::kNotExecutable);
  EXPECT_EQ(got->stderr_stream.head.size(), size_t{1} << 20);
  EXPECT_EQ(got->usage.throttled_ms, 6);
  EXPECT_EQ(got->usage.supervisor_cpu_ms, 7);
  EXPECT_EQ(got->violations[1].evidence, MakeViolation().evidence);
  ASSERT_EQ(got->notices.size(), 1U);
  EXPECT_EQ(got->notices[0].count, 3);
  EXPECT_EQ(got->notices[0].evidence, MakeViolation().evidence);
  EXPECT_EQ(got->violations[0].count, 1);
  EXPECT_EQ(got->violations[1].count, 8);
  // An unmeasured value stays absent and does not become 0.
  outcome.usage = {};
  const Result<CommandOutcome> unmeasured = DecodeOutcome(Encode(outcome)->bytes);
  ASSERT_TRUE(unmeasured) << unmeasured.error().message;
  EXPECT_FALSE(unmeasured->usage.cpu_ms || unmeasured->usage.peak_memory_bytes || unmeasured->usage.processes_peak ||
               unmeasured->usage.throttled_ms);
  EXPECT_FALSE(DecodeOutcome(encoded->bytes.substr(1)));
  EXPECT_FALSE(DecodeOutcome(encoded->bytes + "x"));
}

TEST(OtherMessagesTest, ComeBackAsTheyWere) {
  EXPECT_EQ(DecodeCollect(Encode(CollectMessage{{"/scratch/**", ""}})->bytes)->globs,
            (std::vector<std::string>{"/scratch/**", ""}));

  sandbox::Isolation isolation;
  isolation.walls.namespaces = {"user", "pid"};
  isolation.walls.no_new_privileges = isolation.walls.filter = true;
  isolation.walls.capabilities = uint64_t{1} << 40;
  isolation.walls.most_open_files = 4096;
  isolation.seccomp_profile = "balanced";
  isolation.landlock_abi = 6;
  isolation.cgroup_driver = sandbox::CgroupDriver::kHybrid;
  isolation.walls.host_uid = 4'000'000'000;
  isolation.own_id_range = true;
  isolation.start = sandbox::Start::kInterpreter;
  isolation.degraded = {"cpu: not limited"};
  const Result<sandbox::Isolation> applied = DecodeIsolation(Encode(isolation)->bytes);
  ASSERT_TRUE(applied);
  EXPECT_EQ(applied->walls.host_uid, 4'000'000'000U);
  EXPECT_TRUE(applied->walls.no_new_privileges && applied->walls.filter && !applied->walls.read_only_root);
  EXPECT_EQ(applied->walls.capabilities, uint64_t{1} << 40);
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
