// Page tables: a process that reads one byte of every 2 MiB of a large mapping makes the kernel fill a page of tables
// each time, while its resident size stays small.
//
// SAFETY: 160 MiB against a limit of 64 MiB, given back at the end.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr size_t kMappedByOnePage = size_t{2} << 20;
constexpr size_t kTables = 40'960;  // 160 MiB

long TableKb() {
  const std::string text = ReadText("/proc/self/status");
  const size_t line = text.find("VmPTE:");
  return line == std::string::npos ? 0 : std::atol(text.c_str() + line + 6);
}

Observation Tables() {
  void* all =
      ::mmap(nullptr, kTables * kMappedByOnePage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return Blocked(errno);
  ::madvise(all, kTables * kMappedByOnePage, MADV_NOHUGEPAGE);
  long sum = 0;
  for (size_t i = 0; i < kTables; ++i) sum += static_cast<volatile const char*>(all)[i * kMappedByOnePage];
  ::usleep(500'000);
  const long kib = TableKb() + sum;
  return kib >= 128 << 10 ? Escaped(std::to_string(kib >> 10) + " MiB of page tables") : NotApplicable("few tables");
}

const Registration kRow(Row{
    .id = "F17",
    .title = "page tables of memory that is not resident",
    .severity = Severity::kHostDenial,
    .walls = {"memory limit"},
    .attempts = {{.probe = Tables,
                  .expect = {.death = Death::kRequired, .reports = {{"MemoryLimitViolation", "limit.mem"}}},
                  .flags = {"--memory", "64M"}}},
});

}  // namespace

}  // namespace caisson::escape
