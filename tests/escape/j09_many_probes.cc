// Probes without end: the result stays small, counts them all and passes; with one real attempt among them it fails, at
// any position; and a profile that lists no probes calls each of them a violation.
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

constexpr int kTimes = 5000;
constexpr size_t kMostBytes = 64 * 1024;

std::string Program(const std::string& between) {
  return "import ctypes, os\nlibc = ctypes.CDLL(None)\nfor i in range(" + std::to_string(kTimes) +
         "):\n"
         "    libc.syscall(237, None, 4096, 1, None, 0, 0)\n"
         "    try: os.mkdir('/var/cache/fontconfig/%d' % i)\n"
         "    except OSError: pass\n" +
         between;
}

Outcome Run(Host& host, const std::string& program, const std::vector<std::string>& flags = {}) {
  return host.Run({.command = {"/usr/bin/python3", "-c", program}, .flags = flags, .with_probe = false});
}

int64_t CountOf(const ResultDocument& result, const std::string& probe) {
  const json document = json::parse(result.text);
  for (const json& notice : document.at("notices")) {
    if (notice.at("probe") == probe) return notice.at("count").get<int64_t>();
  }
  return 0;
}

Judgement JudgeMany(Host& host) {
  const Outcome harmless = Run(host, Program(""));
  if (!harmless.result) return Broken("no result: " + harmless.process.err);
  const ResultDocument& result = *harmless.result;
  if (result.status != "pass" || !result.violations.empty())
    return Broken("harmless probes are held against it: " + result.status + " " + result.failure_class);
  if (CountOf(result, "syscall.numa") != kTimes || CountOf(result, "/var/cache/fontconfig") != kTimes)
    return Broken("they are not all counted");
  if (result.text.size() > kMostBytes) return Broken("the result has " + std::to_string(result.text.size()) + " bytes");

  const Outcome hidden = Run(host, Program("    if i == 2500:\n        try: open('/usr/fresh', 'w')\n"
                                           "        except OSError: pass\n"));
  if (!hidden.result || hidden.result->status != "fail" || hidden.result->failure_class != "FilesystemWriteViolation" ||
      hidden.result->violations.size() != 1 || hidden.result->violations[0].evidence.at("path") != "/usr/fresh")
    return Broken("a write among them is not found");

  const std::string profile =
      host.WriteFile("without.yaml", "version: 1\nname: without\nextends: balanced\nprobes: []\n");
  const Outcome without = Run(host, Program("    break\n"), {"--profile", profile});
  if (!without.result) return Broken("no result without probes: " + without.process.err);
  if (without.result->status != "fail" || without.result->Find("SyscallViolation", "syscall.numa") == nullptr ||
      without.result->Find("FilesystemWriteViolation", "fs.write") == nullptr)
    return Broken("a profile without probes still forgives them");
  return Held("two notices for " + std::to_string(2 * kTimes) + " probes");
}

const Registration kRow(Row{
    .id = "J09",
    .title = "probes without end, and one real attempt among them",
    .severity = Severity::kIntegrity,
    .walls = {"probes by exact rule", "one notice for each entry"},
    .judge = JudgeMany,
});

}  // namespace

}  // namespace caisson::escape
