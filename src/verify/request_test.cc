#include "verify/request.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "support/corpus.h"

namespace caisson::verify {
namespace {

// A request with a source and, after it, `members`: `"mode": "strict"`.
std::string With(const std::string& members) { return R"({"source": {"path": "/a"}, )" + members + "}"; }
std::string WithFiles(const std::string& files) { return R"({"source": {"files": {)" + files + "}}}"; }
std::string WithCheck(const std::string& members) {
  return With(R"("checks": [{"name": "c", "tier": "run", )" + members + "}]");
}

std::string FaultOf(const std::string& text) {
  const Result<Request> request = ParseRequest(text);
  if (request) return "accepted";
  EXPECT_EQ(request.error().kind, ErrorKind::kInvalid);
  return request.error().message;
}

void ExpectFault(const std::string& text, std::string_view expected) {
  const std::string fault = FaultOf(text);
  EXPECT_NE(fault.find(expected), std::string::npos) << "document: " << text.substr(0, 200) << "\nfault: " << fault;
}

TEST(RequestCorpus, IsJudgedAsTheSchemaJudgesIt) {
  testing::ExpectAgreement("verification_request", 10, 25, 25,
                           [](const std::string& text) { return FaultOf(text) == "accepted"; });
}

TEST(ParseRequest, ReadsEveryField) {
  const Result<Request> parsed = ParseRequest(testing::Document("verification_request", "valid", "everything"));
  ASSERT_TRUE(parsed) << parsed.error().message;
  const Request& request = *parsed;
  EXPECT_EQ(request.request_id, "job-17.retry_2");
  EXPECT_EQ(request.attempt, 2);
  EXPECT_EQ(request.mode, Mode::kStrict);
  EXPECT_EQ(request.profile, "python-offline");
  ASSERT_EQ(request.source.files.size(), 2u);
  EXPECT_EQ(request.source.files[0].name, "main.py");
  EXPECT_EQ(request.source.files[0].bytes, "print('hello')\n");
  EXPECT_FALSE(request.source.path || request.source.archive);
  ASSERT_EQ(request.checks.size(), 2u);
  const Check& unit = request.checks[1];
  EXPECT_EQ(unit.tier, "test");
  EXPECT_EQ(unit.argv, (std::vector<std::string>{"python3", "-m", "pytest", ""}));
  EXPECT_EQ(unit.env.size(), 3u);
  EXPECT_EQ(unit.stdin_text, "line\n");
  EXPECT_EQ(unit.timeout_ms, 1500);
  EXPECT_EQ(unit.cwd, "/workspace/tests");
  EXPECT_FALSE(request.checks[0].stdin_text || request.checks[0].timeout_ms);
  EXPECT_EQ(request.limits.command_timeout_ms, 30'000);
  EXPECT_EQ(request.limits.budget_ms, 60'000);
  EXPECT_EQ(request.limits.cpu_millis, 1'500);
  EXPECT_EQ(request.limits.memory_bytes, int64_t{256} << 20);
  EXPECT_EQ(request.limits.processes, 64);
  EXPECT_EQ(request.limits.output_bytes, 1 << 20);
  EXPECT_EQ(request.limits.scratch_bytes, 64 << 20);
  EXPECT_TRUE(request.network.allowlist);
  EXPECT_EQ(request.network.allow.size(), 5u);
  ASSERT_EQ(request.mounts.size(), 2u);
  EXPECT_EQ(request.mounts[0].access, Access::kCopyOnWrite);
  EXPECT_EQ(request.mounts[1].access, Access::kReadOnly);
  EXPECT_EQ(request.mounts[1].target, "/data");
  EXPECT_EQ(request.artifacts, (std::vector<std::string>{"/scratch/report.xml", "/workspace/**/*.log"}));
  EXPECT_EQ(request.idempotency_key, "abc/123");
  EXPECT_EQ(request.priority, -5);
  EXPECT_EQ(request.labels.at("team/owner"), "verify");
  EXPECT_EQ(request.callback_url, "https://hooks.example.org:8443/done?run=1");
  EXPECT_EQ(request.deadline, "2030-02-28T23:59:60.123+05:30");
}

TEST(ParseRequest, FillsInDefaults) {
  const Result<Request> request = ParseRequest(R"({"source": {"path": "/a"}})");
  ASSERT_TRUE(request);
  EXPECT_TRUE(IsValidRequestId(request->request_id));
  EXPECT_EQ(request->attempt, 1);
  EXPECT_EQ(request->mode, Mode::kBalanced);
  EXPECT_TRUE(request->profile.empty() && request->checks.empty() && !request->network.allowlist);
  EXPECT_FALSE(request->limits.memory_bytes || request->limits.cpu_millis);
}

TEST(ParseRequest, NamesUnknownFieldsAndWhatWasMeant) {
  ExpectFault(With(R"("chekcs": [])"), "chekcs: unknown field; did you mean \"checks\"?");
  ExpectFault(With(R"("limits": {"cpus": 1})"), "limits.cpus: unknown field; did you mean \"cpu\"?");
  ExpectFault(WithCheck(R"("argv": ["x"], "timeoutms": 1)"),
              "checks[0].timeoutms: unknown field; did you mean \"timeout_ms\"?");
  ExpectFault(With(R"("zzz": 1)"), "zzz: unknown field; known fields are request_id, attempt");
  ExpectFault(With(R"("a\u001bb": 1)"), "[\"a\\x1bb\"]: unknown field");
  ExpectFault(With("\"" + std::string(1 << 20, 'x') + "\": 1"), "unknown field");
}

TEST(ParseRequest, NamesPathExpectedAndFoundType) {
  ExpectFault("[]", "document: expected an object, found an array");
  ExpectFault(With(R"("limits": {"cpu": "2"})"), "limits.cpu: expected a number, found a string");
  ExpectFault(With(R"("attempt": 1.5)"), "attempt: expected an integer, found a number");
  ExpectFault(With(R"("mode": null)"), "mode: expected a string, found null");
  ExpectFault(WithCheck(R"("argv": ["x", true])"), "checks[0].argv[1]: expected a string, found a boolean");
  ExpectFault(WithFiles(R"("a/b": [])"),
              "source.files[\"a/b\"]: expected a string or an object {base64}, found an array");
  ExpectFault(With(R"("checks": [{"name": "c"}])"), "checks[0].tier: required field is missing");
  ExpectFault("{}", "source: required field is missing");
  ExpectFault(With(R"("mode": "lenient")"), "mode: \"lenient\" is not one of balanced, strict");
}

TEST(ParseRequest, TakesExactlyOneSource) {
  ExpectFault(R"({"source": {}})", "source: needs exactly one of path, files and archive; found 0");
  ExpectFault(R"({"source": {"path": "/a", "archive": "x"}})", "found 2");
  const std::string hash(64, 'A');
  const Result<Request> plain = ParseRequest(R"({"source": {"archive": "sha256:)" + hash + R"("}})");
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->source.archive, "sha256:" + std::string(64, 'a'));
  const Result<Request> object =
      ParseRequest(R"({"source": {"archive": {"format": "tar", "sha256": ")" + hash + R"("}}})");
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_EQ(object->source.archive, plain->source.archive);
  EXPECT_EQ(object->source.archive_format, "tar");
}

TEST(ParseRequest, DecodesBase64Files) {
  const Result<Request> request = ParseRequest(
      WithFiles(R"("a": {"base64": ""}, "b": {"base64": "/w=="}, "c": {"base64": "AAE="}, "d": {"base64": "Zm9v"})"));
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->source.files[0].bytes, "");
  EXPECT_EQ(request->source.files[1].bytes, "\xff");
  EXPECT_EQ(request->source.files[2].bytes, std::string("\0\1", 2));
  EXPECT_EQ(request->source.files[3].bytes, "foo");
  for (const char* bad : {"=", "====", "A", "A===", "AA=A", "AA==AAAA", "Zm9v\\n", "Zm9=", "AB==", "\\u00e9AAA"}) {
    ExpectFault(WithFiles(std::string(R"("a": {"base64": ")") + bad + "\"}"), "source.files.a.base64: is not base64");
  }
}

TEST(ParseRequest, RefusesAFileThatIsAlsoADirectory) {
  ExpectFault(WithFiles(R"("a": "", "a-b": "", "a.b": "", "a/b/c": "")"),
              "source.files.a: is a file, but \"a/b/c\" needs a directory there");
  EXPECT_EQ(FaultOf(WithFiles(R"("a.py": "", "a/b": "", "a/b.py": "", "ab": "")")), "accepted");
}

TEST(ParseRequest, ExplainsLimits) {
  for (const char* name :
       {"command_timeout_ms", "budget_ms", "memory_bytes", "processes", "output_bytes", "scratch_bytes"}) {
    for (const char* value : {"0", "-1"}) {
      ExpectFault(With("\"limits\": {\"" + std::string(name) + "\": " + value + "}"),
                  "limits." + std::string(name) + ": must be at least 1; omit the field to use the profile's default");
    }
    ExpectFault(With("\"limits\": {\"" + std::string(name) + "\": 9223372036854775807}"), "must be at most");
  }
  ExpectFault(With(R"("limits": {"memory_bytes": 1000})"), "limits.memory_bytes: must be at least 4194304 (4 MiB)");
  ExpectFault(With(R"("limits": {"cpu": 0})"), "limits.cpu: must be at least 0.01 CPUs; omit the field");
  const Result<Request> request = ParseRequest(With(R"("limits": {"cpu": 0.29})"));
  ASSERT_TRUE(request);
  EXPECT_EQ(request->limits.cpu_millis, 290);
}

TEST(ParseRequest, BoundsArgvAndEnv) {
  const std::string block(100'000, 'x');
  std::string argv = "\"x\"";
  for (int i = 0; i < 10; ++i) argv += ", \"" + block + "\"";
  EXPECT_EQ(FaultOf(WithCheck("\"argv\": [" + argv + "]")), "accepted");
  ExpectFault(WithCheck("\"argv\": [" + argv + "], \"env\": {\"A\": \"" + block + "\"}"),
              "checks[0]: argv and env together take 1100111 bytes as the kernel counts them; at most 1048576");
  ExpectFault(WithCheck("\"argv\": [\"x\", \"" + std::string(131'072, 'x') + "\"]"),
              "checks[0].argv[1]: takes 131072 bytes");
  std::string empties = "\"x\"";
  for (int i = 0; i < 200'000; ++i) empties += ",\"\"";
  ExpectFault(WithCheck("\"argv\": [" + empties + "]"), "argv and env together take");
}

TEST(ParseRequest, ChecksNames) {
  const std::string check = R"({"name": "a", "tier": "t", "argv": ["x"]})";
  ExpectFault(With("\"checks\": [" + check + ", " + check + "]"),
              "checks[1].name: \"a\" is the name of an earlier check");
  ExpectFault(WithCheck(R"("argv": ["x"], "env": {"A=B": "c"})"), "checks[0].env[\"A=B\"]: the name must be");
  ExpectFault(WithCheck(R"("argv": ["x"], "cwd": "/etc")"),
              "checks[0].cwd: \"/etc\" must be /workspace, /scratch, /tmp");
  ExpectFault(With(R"("mounts": [{"source": "/a", "target": "/usr/lib"}])"),
              "mounts[0].target: \"/usr/lib\" must not be at or below /usr");
  ExpectFault(With(R"("mounts": [{"source": "/a", "target": "/var/tmp/x"}])"),
              "mounts[0].target: \"/var/tmp/x\" must not be at or below /var/tmp, which is a link to /tmp");
  for (const std::string own : {"/workspace", "/scratch", "/tmp"}) {
    ExpectFault(With(R"("mounts": [{"source": "/a", "target": ")" + own + "\"}]"),
                "mounts[0].target: \"" + own + "\" is made for each sandbox");
    EXPECT_EQ(FaultOf(With(R"("mounts": [{"source": "/a", "target": ")" + own + "/x\"}]")), "accepted");
  }
}

TEST(ParseRequest, LowersAllowedHosts) {
  const Result<Request> request =
      ParseRequest(With(R"("network": {"mode": "allowlist", "allow": ["PyPI.org:443", "**.Example.ORG"]})"));
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->network.allow, (std::vector<std::string>{"pypi.org:443", "**.example.org"}));
  ExpectFault(With(R"("network": {"mode": "none", "allow": ["a.org"]})"),
              "network.allow: needs the mode \"allowlist\"");
  ExpectFault(With(R"("network": {"mode": "allowlist", "allow": ["*.com"]})"),
              "network.allow[0]: \"*.com\" is too wide");
}

TEST(ParseRequest, DoesNotRepeatPasswords) {
  const std::string fault = FaultOf(With(R"("callback_url": "https://user:hunter2@example.org/")"));
  EXPECT_EQ(fault, "callback_url: must not carry a user name or password");
}

TEST(ParseRequest, RefusesOversizeDocuments) {
  EXPECT_EQ(FaultOf(R"({"source": {"path": "/a"}})" + std::string(1000, ' ')), "accepted");
  ExpectFault(R"({"source": {"path": "/a"}})" + std::string(kMaxRequestBytes, ' '),
              "at most 67108864 (64 MiB) are read");
}

TEST(RequestId, IsFreshAndFollowsThePattern) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = GenerateRequestId();
    EXPECT_TRUE(IsValidRequestId(id)) << id;
    EXPECT_TRUE(ids.insert(id).second) << id;
  }
  EXPECT_TRUE(IsValidRequestId(std::string(128, 'a')));
  EXPECT_FALSE(IsValidRequestId(std::string(129, 'a')));
  EXPECT_FALSE(IsValidRequestId(""));
  EXPECT_FALSE(IsValidRequestId("a/b"));
  EXPECT_FALSE(IsValidRequestId("a\n"));
}

}  // namespace
}  // namespace caisson::verify
