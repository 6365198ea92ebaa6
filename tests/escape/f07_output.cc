// Output without end: it must not fill the caller's memory or disk, and the kept part must still be a document.
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

constexpr int64_t kLimit = int64_t{1} << 20;
// Single bytes are a call each, so fewer of them; both are three times their limit.
constexpr size_t kWritten = size_t{3} << 20, kBytesWritten = size_t{192} << 10;

bool WriteAll(int fd, const std::string& bytes) {
  for (size_t written = 0; written < bytes.size();) {
    const ssize_t size = ::write(fd, bytes.data() + written, bytes.size() - written);
    if (size <= 0) return false;
    written += static_cast<size_t>(size);
  }
  return true;
}

Observation Flood(const std::vector<int>& streams, const std::string& piece) {
  const size_t all = piece.size() == 1 ? kBytesWritten : kWritten;
  for (size_t written = 0; written < all; written += piece.size() * streams.size()) {
    for (const int stream : streams) {
      if (!WriteAll(stream, piece)) return Blocked(errno);
    }
  }
  WriteAll(STDOUT_FILENO, "\n");  // the probe's own line comes next
  return Escaped("wrote " + std::to_string(all) + " bytes");
}

Attempt FloodWith(const char* name, std::vector<int> streams, std::string piece) {
  const char* limit = piece.size() == 1 ? "64K" : "1M";
  return {.name = name,
          .probe = [streams = std::move(streams), piece = std::move(piece)] { return Flood(streams, piece); },
          .expect = {.death = Death::kRequired, .reports = {{"OutputLimitViolation", "limit.output"}}},
          .flags = {"--output-limit", limit}};
}

// An endless writer against a Caisson that may have little memory of its own: if it kept what it reads, it would end
// without a result.
Judgement JudgeMemory(Host& host) {
  const std::string result_file = host.MakeDirectory() + "/result.json";
  Command command;
  command.before_exec = [] {
    const struct rlimit little { 48U << 20, 48U << 20 };
    return ::setrlimit(RLIMIT_DATA, &little) == 0;
  };
  command.argv = {host.caisson(), "--version"};
  if (Process::Start(command).Finish(kPatienceMs).exit_code != 0)
    return Vacuous(
        "this build of the program does not even start with little memory, as one with a sanitizer does not");
  command.argv = {host.caisson(),   "run", "--quiet", "--result", result_file,
                  "--output-limit", "1M",  "--",      "yes",      "no end"};
  const Finished ended = Process::Start(command).Finish(kPatienceMs);
  const auto result = ParseResult(ReadText(result_file));
  if (ended.timed_out || !result) return Broken("an endless writer: no result: " + ended.err);
  const ReportedViolation* found = result->Find("OutputLimitViolation", "limit.output");
  if (found == nullptr) return Broken("an endless writer: not reported");
  const int64_t bytes =
      std::atoll(found->evidence.count("bytes_written") ? found->evidence.at("bytes_written").c_str() : "");
  if (bytes <= kLimit || bytes > 2 * kLimit)
    return Broken("the evidence speaks of " + std::to_string(bytes) + " bytes written");
  return Held("");
}

// Bytes that are no text, kept head and tail.
Judgement JudgeDocument(Host& host) {
  if (const Judgement memory = JudgeMemory(host); memory.verdict != Verdict::kPass) return memory;
  const std::string program =
      "import os\nos.write(1, b'HEAD')\nfor i in range(3000): os.write(1 + i % 2, b'\\xff\\x00\\x1b[2J\\xed\\xa0\\x80' "
      "* 200)\n";
  const json request = {{"source", {{"files", {{"main.py", program}}}}}, {"limits", {{"output_bytes", kLimit}}}};
  const Outcome run = host.Verify(request.dump());
  if (!run.result) return Broken("bytes that are no text: no document: " + run.process.err);
  if (run.result->failure_class != "OutputLimitViolation")
    return Broken("verify calls it " + run.result->failure_class);
  const json document = json::parse(run.result->text);
  // A byte that is no text takes three in the document.
  if (run.result->stdout_text.size() + run.result->stderr_text.size() > static_cast<size_t>(3 * kLimit) + 4096)
    return Broken("more was kept than the limit allows");
  if (run.result->stdout_text.rfind("HEAD", 0) != 0) return Broken("the head was not kept");
  if (!document["output"].value("truncated", false)) return Broken("the document does not say that output was cut");
  return Held("bounded, and still a document");
}

const Registration kRow(Row{
    .id = "F07",
    .title = "output without end: either stream, both, single bytes, no text",
    .severity = Severity::kHostDenial,
    .walls = {"output limit"},
    .attempts = {FloodWith("stdout", {1}, std::string(4096, 'y') + "\n"),
                 FloodWith("stderr", {2}, std::string(65536, 'e')), FloodWith("both", {1, 2}, std::string(1000, 'b')),
                 FloodWith("bytes", {1}, "1"), FloodWith("nul", {1}, std::string(8192, '\0')),
                 FloodWith("no_text", {1}, "\xff\xfe\xed\xa0\x80\x1b]0;x\a")},
    .judge = JudgeDocument,
});

}  // namespace

}  // namespace caisson::escape
