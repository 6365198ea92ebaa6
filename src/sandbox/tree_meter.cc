#include "sandbox/tree_meter.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <memory>
#include <string>
#include <string_view>

#include "linux/files.h"

namespace caisson::sandbox {

namespace {

// Field `index` (1-based, as in proc(5)) of a stat line, counted from behind the command name, which may hold anything.
int64_t StatField(std::string_view line, int index) {
  const size_t name_end = line.rfind(')');
  if (name_end == std::string_view::npos) return 0;
  line.remove_prefix(name_end + 1);
  for (int field = 3; !line.empty(); ++field) {
    line.remove_prefix(line.find_first_not_of(' ') == std::string_view::npos ? line.size()
                                                                             : line.find_first_not_of(' '));
    const size_t end = line.find(' ');
    if (field == index) {
      int64_t value = 0;
      std::from_chars(line.data(), line.data() + (end == std::string_view::npos ? line.size() : end), value);
      return value;
    }
    line.remove_prefix(end == std::string_view::npos ? line.size() : end);
  }
  return 0;
}

}  // namespace

template <typename Visit>
void TreeMeter::ForEachProcess(Visit visit) const {
  std::unique_ptr<DIR, int (*)(DIR*)> directory(
      ::fdopendir(::openat(proc_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), ::closedir);
  if (!directory) return;
  while (const struct dirent* entry = ::readdir(directory.get())) {
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') visit(std::string(entry->d_name));
  }
}

TreeMeasure TreeMeter::Measure() const {
  TreeMeasure measure;
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const int64_t ticks = ::sysconf(_SC_CLK_TCK);
  ForEachProcess([&](const std::string& pid) {
    const Result<std::string> stat = linux_sys::ReadSmallFile(proc_.get(), (pid + "/stat").c_str(), 1024);
    if (!stat) return;  // it has ended
    const int64_t own = StatField(*stat, 14) + StatField(*stat, 15);
    if (pid == "1") {
      measure.cpu_ms += (own + StatField(*stat, 16) + StatField(*stat, 17)) * 1000 / ticks;
      return;
    }
    measure.cpu_ms += own * 1000 / ticks;
    measure.tasks += StatField(*stat, 20);
    measure.resident_bytes += StatField(*stat, 24) * page;
  });
  return measure;
}

int64_t TreeMeter::ProportionalBytes() const {
  int64_t total = 0;
  ForEachProcess([&](const std::string& pid) {
    if (pid == "1") return;
    const Result<std::string> rollup = linux_sys::ReadSmallFile(proc_.get(), (pid + "/smaps_rollup").c_str(), 4096);
    if (!rollup) return;
    const size_t at = rollup->find("\nPss:");
    if (at == std::string::npos) return;
    const size_t digits = rollup->find_first_of("0123456789", at);
    int64_t kibibytes = 0;
    std::from_chars(rollup->data() + digits, rollup->data() + rollup->size(), kibibytes);
    total += kibibytes * 1024;
  });
  return total;
}

}  // namespace caisson::sandbox
