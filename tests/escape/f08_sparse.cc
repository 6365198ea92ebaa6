// Sparse files: cheap to create and expensive to copy.
//
// SAFETY: holes take no room on a disk; what is really allocated is 64 MiB, in a directory that the harness removes.
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

constexpr long kTebibyte = 1L << 40;

int OpenNew() {
  ::signal(SIGXFSZ, SIG_IGN);  // it comes with the error, and would be the end
  return ::open((WritableDirectory() + "/large").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

Observation Truncate() { return FromCall(Call(SYS_ftruncate, OpenNew(), kTebibyte), "a file of 1 TiB"); }

Observation WriteFarOut() { return FromCall(Call(SYS_pwrite64, OpenNew(), "x", 1, kTebibyte), "a byte at 1 TiB"); }

// A file of memory is no different.
Observation MemoryFile() {
  ::signal(SIGXFSZ, SIG_IGN);
  return FromCall(Call(SYS_ftruncate, Call(SYS_memfd_create, "large", 0), kTebibyte), "a memory file of 1 TiB");
}

Observation Allocate() { return FromCall(Call(SYS_fallocate, OpenNew(), 0, 0, 64L << 20), "64 MiB allocated"); }

const std::vector<std::string> kFlags = {"--scratch", "8M"};

// A hole of 400 MB inside is within the limit; the collector must neither store it nor take its time.
Judgement JudgeCollector(Host& host) {
  const json request = {{"source",
                         {{"files",
                           {{"main.py",
                             "f = open('/scratch/hole', 'wb')\nf.truncate(400 << 20)\n"
                             "open('/scratch/small', 'w').write('kept')\n"}}}}},
                        {"artifacts", {"/scratch/**"}}};
  const std::string stored = host.MakeDirectory() + "/stored";
  const Outcome run = host.Verify(request.dump(), {"--artifacts", stored});
  if (run.process.timed_out) return Broken("collecting a hole did not end");
  if (!run.result || run.result->status != "pass") return Broken("the run itself failed: " + run.process.err);
  const json artifacts = json::parse(run.result->text)["artifacts"];
  if (artifacts.size() != 1 || artifacts[0]["path"] != "/scratch/small")
    return Broken("collected: " + artifacts.dump());
  if (run.result->text.find("/scratch/hole: artifacts are larger than allowed") == std::string::npos)
    return Broken("what was left out is not named");
  return Held("the hole was not collected");
}

const Registration kRow(Row{
    .id = "F08",
    .title = "sparse and preallocated giants",
    .severity = Severity::kHostDenial,
    .walls = {"resource limits", "scratch size", "collector"},
    .attempts = {{.name = "truncate", .probe = Truncate, .expect = {.errnos = {EFBIG}}, .flags = kFlags},
                 {.name = "far_out", .probe = WriteFarOut, .expect = {.errnos = {EFBIG}}, .flags = kFlags},
                 {.name = "memory_file", .probe = MemoryFile, .expect = {.errnos = {EFBIG}}, .flags = kFlags},
                 {.name = "allocate",
                  .probe = Allocate,
                  .expect = {.errnos = {EFBIG, ENOSPC}, .reports = {{"FilesystemWriteViolation", "scratch_limit"}}},
                  .flags = kFlags}},
    .judge = JudgeCollector,
});

}  // namespace

}  // namespace caisson::escape
