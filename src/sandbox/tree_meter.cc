#include "sandbox/tree_meter.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "linux/files.h"
#include "sandbox/mutation.h"

namespace caisson::sandbox {

namespace {

constexpr int64_t kUnmappedIntervalNs = 20'000'000;
// The pause until the next search, as a multiple of its duration: the supervisor spends at most a tenth of a processor
// on it.
constexpr int64_t kRestAfterLook = 9;
// A page of page tables maps 512 times its size.
constexpr int64_t kMappedByTables = 512;
constexpr int64_t kSmallTables = int64_t{4} << 20;
// The capacity of the smallest pipe; larger pipes use the user's own allowance (fs.pipe-user-pages-soft), which is
// worth about this many pipes.
constexpr int64_t kSmallestPipe = 8192;
constexpr int64_t kPipesOfAllowance = 1024;
// A process that PID 1 has forked is closed to the supervisor, like PID 1, until it executes its program; so is a
// program of another user that the workload's user may execute but not read. Neither stays closed for this long.
constexpr int64_t kToleratedClosedNs = 500'000'000;
// Fields of /proc/PID/stat.
constexpr int kParentField = 4, kThreadsField = 20, kMappedField = 23, kResidentField = 24;
constexpr int64_t kDescriptorsPerLook = 10'000;

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

// The bytes of a "Key:   12 kB" line; -1 when there is none.
int64_t KilobyteLine(std::string_view text, std::string_view key) {
  for (size_t at = 0; (at = text.find(key, at)) != std::string_view::npos; at += key.size()) {
    if (at != 0 && text[at - 1] != '\n') continue;
    const size_t digits = text.find_first_of("0123456789", at + key.size());
    if (digits == std::string_view::npos) return -1;
    int64_t kibibytes = 0;
    std::from_chars(text.data() + digits, text.data() + text.size(), kibibytes);
    return kibibytes * 1024;
  }
  return -1;
}

int64_t Sum(const std::map<ino_t, int64_t>& files) {
  int64_t bytes = 0;
  for (const auto& [inode, size] : files) bytes += size;
  return bytes;
}

int64_t BytesOfPipes(size_t count) {
  const auto pipes = static_cast<int64_t>(count);
  return pipes > kPipesOfAllowance ? pipes * kSmallestPipe : 0;
}

}  // namespace

TreeMeter::TreeMeter(Views views) : views_(std::move(views)), sockets_(views_.proc.get(), std::move(views_.diagnosis)) {
  // Every memory file and segment lives on one file system of the kernel; a memory file of our own shows which.
  const UniqueFd own(::memfd_create("caisson-meter", MFD_CLOEXEC));
  struct stat info {};
  if (own && ::fstat(own.get(), &info) == 0) memory_files_ = info.st_dev;
  last_open_ns_ = MonotonicNanos();
}

template <typename Visit>
void TreeMeter::ForEachEntry(const char* directory_path, Visit visit) const {
  std::unique_ptr<DIR, int (*)(DIR*)> directory(
      ::fdopendir(::openat(views_.proc.get(), directory_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)), ::closedir);
  if (!directory) return;
  while (const struct dirent* entry = ::readdir(directory.get())) {
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') visit(std::string(entry->d_name));
  }
}

std::optional<TreeMeter::Process> TreeMeter::Find(const std::string& pid) const {
  const auto read = [&](const std::string& path) {
    return linux_sys::ReadSmallFile(views_.proc.get(), (path + "/stat").c_str(), 1024);
  };
  Result<std::string> stat = read(pid);
  if (!stat) return std::nullopt;
  Process process{pid, pid, *stat, *stat};
  if (StatField(process.stat, kMappedField) != 0 || StatField(process.stat, kThreadsField) <= 1) return process;
  // The first thread has ended and shows no memory any more; the other threads show all of it.
  ForEachEntry((pid + "/task").c_str(), [&](const std::string& thread) {
    if (StatField(process.stat, kMappedField) != 0) return;
    if (Result<std::string> other = read(pid + "/task/" + thread); other && StatField(*other, kMappedField) != 0)
      process = {pid, pid + "/task/" + thread, *std::move(other), process.whole};
  });
  return process;
}

template <typename Visit>
void TreeMeter::ForEachProcess(Visit visit) const {
  ForEachEntry(".", [&](const std::string& pid) {
    if (const std::optional<Process> process = Find(pid)) visit(*process);
  });
}

int64_t TreeMeter::ResidentBytes(const std::string& pid) const {
  const std::optional<Process> process = Find(pid);
  return process ? StatField(process->stat, kResidentField) * ::sysconf(_SC_PAGESIZE) : 0;
}

TreeMeasure TreeMeter::Measure() {
  TreeMeasure measure;
  int64_t reaped = 0;  // ticks of processes that other processes waited for, and of PID 1
  std::map<std::string, LastSeen> seen;
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const int64_t ticks = ::sysconf(_SC_CLK_TCK);
  ForEachProcess([&](const Process& process) {
    const std::string& stat = process.stat;
    const std::string& whole = process.whole;
    const int64_t own = StatField(whole, 14) + StatField(whole, 15);
    reaped += StatField(whole, 16) + StatField(whole, 17);
    if (process.pid == "1") {
      reaped += own;
      return;
    }
    seen[process.pid] = {StatField(whole, 22), own};
    measure.tasks += StatField(whole, kThreadsField);
    measure.resident_bytes += StatField(stat, kResidentField) * page;
    // Only a process with large mappings can have large page tables.
    if (StatField(stat, kMappedField) / kMappedByTables < kSmallTables || CAISSON_LEFT_OUT("unmapped_memory")) return;
    const Result<std::string> status =
        linux_sys::ReadSmallFile(views_.proc.get(), (process.path + "/status").c_str(), 8192);
    if (status) measure.table_bytes += std::max<int64_t>(KilobyteLine(*status, "VmPTE:"), 0);
  });
  int64_t alive = 0;
  for (const auto& [pid, process] : seen) alive += process.ticks;
  for (const auto& [pid, process] : last_seen_) {
    const auto found = seen.find(pid);
    if (found == seen.end() || found->second.started != process.started) ended_ticks_ += process.ticks;
  }
  last_seen_ = std::move(seen);
  // Two sums of the same time, and each lacks processes that the other has: `ended_ticks_` those that were never seen,
  // `reaped` those that no process waited for.
  measure.cpu_ms = (alive + std::max(reaped, ended_ticks_)) * 1000 / ticks;
  return measure;
}

int64_t TreeMeter::TasksAtOnce() const {
  const auto count = [&] {
    std::map<std::string, int64_t> tasks;
    ForEachProcess([&](const Process& process) {
      if (process.pid != "1") tasks[process.pid] = StatField(process.stat, kThreadsField);
    });
    return tasks;
  };
  const std::map<std::string, int64_t> before = count(), after = count();
  int64_t tasks = 0;
  for (const auto& [pid, threads] : before) {
    if (const auto found = after.find(pid); found != after.end()) tasks += std::min(threads, found->second);
  }
  return tasks;
}

// A child of vfork runs in its parent's memory until it executes a program, and both processes show all of that memory.
// The parent, or the thread of it that forked, meanwhile sleeps in state D. SECURITY: at most one child counts as
// borrower for each such thread. A real copy that looks the same may be mistaken for the borrower, but then the
// borrower itself is counted in its place.
std::set<std::string> TreeMeter::BorrowersOfMemory() const {
  std::map<std::string, Process> all;
  ForEachProcess([&](const Process& process) { all.emplace(process.pid, process); });
  std::map<std::string, std::vector<std::string>> alike;  // parent, children
  for (const auto& entry : all) {
    const Process& child = entry.second;
    const auto parent = all.find(std::to_string(StatField(child.stat, kParentField)));
    if (parent == all.end() || parent->first == "1") continue;
    const auto difference = [&](int field) {
      return std::abs(StatField(child.stat, field) - StatField(parent->second.stat, field));
    };
    constexpr int64_t kPagesMeanwhile = 64;  // the two are not read at the same moment
    if (difference(kMappedField) == 0 && difference(kResidentField) <= kPagesMeanwhile)
      alike[parent->first].push_back(child.pid);
  }
  std::set<std::string> borrowers;
  for (const auto& entry : alike) {
    const std::string tasks = entry.first + "/task";
    const std::vector<std::string>& children = entry.second;
    size_t waiting = 0;
    ForEachEntry(tasks.c_str(), [&](const std::string& thread) {
      const Result<std::string> stat =
          linux_sys::ReadSmallFile(views_.proc.get(), (tasks + "/" + thread + "/stat").c_str(), 1024);
      if (stat && stat->find(") D ", stat->rfind(')')) != std::string::npos) ++waiting;
    });
    borrowers.insert(children.begin(), children.begin() + static_cast<ptrdiff_t>(std::min(waiting, children.size())));
  }
  return borrowers;
}

TreeMeter::Mapped TreeMeter::ProportionalBytes(const std::set<std::string>& borrowers) const {
  Mapped total;
  ForEachProcess([&](const Process& process) {
    if (process.pid == "1" || borrowers.count(process.pid) != 0) return;
    const Result<std::string> rollup =
        linux_sys::ReadSmallFile(views_.proc.get(), (process.path + "/smaps_rollup").c_str(), 4096);
    const int64_t bytes = rollup ? KilobyteLine(*rollup, "Pss:") : -1;
    if (bytes < 0) {
      // The process has ended, or it is closed to us (PR_SET_DUMPABLE, or a program that its user may not read). Its
      // resident memory is never less than its share, and the kernel shows that number for any process.
      total.bytes += ResidentBytes(process.pid);
      return;
    }
    total.bytes += bytes;
    total.shared_bytes += std::max<int64_t>(KilobyteLine(*rollup, "Pss_Shmem:"), 0);
  });
  return total;
}

int64_t TreeMeter::BytesOfOwnMappings(const std::set<std::string>& borrowers) const {
  int64_t total = 0;
  ForEachProcess([&](const Process& process) {
    if (process.pid == "1" || borrowers.count(process.pid) != 0) return;
    const UniqueFd fd(::openat(views_.proc.get(), (process.path + "/smaps").c_str(), O_RDONLY | O_CLOEXEC));
    std::unique_ptr<FILE, int (*)(FILE*)> maps(fd ? ::fdopen(::dup(fd.get()), "re") : nullptr, ::fclose);
    int64_t of_process = 0;
    bool counted_as_file = false, read = false;
    char line[8192];
    while (maps && ::fgets(line, sizeof(line), maps.get()) != nullptr) {
      unsigned major = 0, minor = 0;
      unsigned long inode = 0;
      long kibibytes = 0;
      if (std::sscanf(line, "%*x-%*x %*s %*x %x:%x %lu", &major, &minor, &inode) == 3) {
        const dev_t device = makedev(major, minor);
        counted_as_file = device == views_.scratch ||
                          (device == memory_files_ && (files_.count(inode) != 0 || segments_.count(inode) != 0));
        read = true;
      } else if (!counted_as_file && std::sscanf(line, "Pss: %ld kB", &kibibytes) == 1) {
        of_process += int64_t{kibibytes} * 1024;
      }
    }
    total += read ? of_process : ResidentBytes(process.pid);
  });
  return total;
}

int64_t TreeMeter::LookAtDescriptors(int64_t after, Descriptors& found) const {
  int64_t looked_at = 0, last = 0;
  bool all = true;
  ForEachProcess([&](const Process& process) {
    const int64_t number = std::atoll(process.pid.c_str());
    if (number == 1 || number <= after) return;
    if (looked_at > kDescriptorsPerLook) {
      all = false;
      return;
    }
    last = number;
    const int fd = ::openat(views_.proc.get(), (process.path + "/fd").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // The kernel shows nothing more of a process that has released its memory and is exiting; it runs no code.
    const bool refused = fd < 0 && errno != ENOENT && errno != ESRCH && StatField(process.stat, kMappedField) != 0;
    std::unique_ptr<DIR, int (*)(DIR*)> directory(fd < 0 ? nullptr : ::fdopendir(fd), ::closedir);
    if (refused) found.closed.insert(number);
    while (const struct dirent* entry = directory ? ::readdir(directory.get()) : nullptr) {
      struct stat info {};
      ++looked_at;
      if (entry->d_name[0] == '.' || ::fstatat(fd, entry->d_name, &info, 0) != 0) continue;  // closed meanwhile
      if (S_ISFIFO(info.st_mode)) found.pipes.insert(info.st_ino);
      if (S_ISREG(info.st_mode) && info.st_dev == memory_files_) found.files[info.st_ino] = info.st_blocks * 512;
    }
  });
  return all ? 0 : last;
}

void TreeMeter::LookIntoProcesses(int64_t limit) {
  const bool from_start = looked_up_to_ == 0;
  looked_up_to_ = LookAtDescriptors(looked_up_to_, looking_);
  if (looked_up_to_ != 0) {
    if (Sum(looking_.files) > Sum(files_)) files_ = looking_.files;
    pipe_bytes_ = std::max(pipe_bytes_, BytesOfPipes(looking_.pipes.size()));
    return;
  }
  // A file that disappeared during the search may have been counted beside its successor, so an excess must be found
  // twice.
  if (Descriptors again; from_start && Sum(looking_.files) > limit && LookAtDescriptors(0, again) == 0) {
    for (auto file = looking_.files.begin(); file != looking_.files.end();) {
      file = again.files.count(file->first) == 0 ? looking_.files.erase(file) : std::next(file);
    }
  }
  files_ = std::move(looking_.files);
  pipe_bytes_ = BytesOfPipes(looking_.pipes.size());
  NoteClosed(looking_.closed);
  looking_ = {};
}

void TreeMeter::NoteClosed(const std::set<int64_t>& closed) {
  const int64_t now = MonotonicNanos();
  std::map<int64_t, int64_t> since;
  unmeasured_ = 0;
  for (const int64_t pid : closed) {
    const auto before = closed_since_.find(pid);
    since[pid] = before == closed_since_.end() ? now : before->second;
    if (now - since[pid] >= kToleratedClosedNs) ++unmeasured_;
  }
  // A sequence of processes, each closed for a short while, is not tolerated either.
  if (closed.empty()) last_open_ns_ = now;
  if (unmeasured_ == 0 && now - last_open_ns_ >= 2 * kToleratedClosedNs)
    unmeasured_ = static_cast<int64_t>(closed.size());
  closed_since_ = std::move(since);
}

TreeMeter::Files TreeMeter::Segments() const {
  Files segments;
  if (!views_.segments) return segments;
  std::string text(size_t{1} << 20, '\0');  // the kernel's default is at most 4096 of them
  size_t size = 0;
  for (ssize_t part; size < text.size() && (part = ::pread(views_.segments.get(), text.data() + size,
                                                           text.size() - size, static_cast<off_t>(size))) > 0;) {
    size += static_cast<size_t>(part);
  }
  text.resize(size);
  for (size_t line = text.find('\n'); line != std::string::npos; line = text.find('\n', line + 1)) {
    // key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap; the id is the inode number.
    long id = 0;
    long long resident = 0;
    if (std::sscanf(text.c_str() + line + 1, "%*d %ld %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lld", &id,
                    &resident) == 2) {
      segments[static_cast<ino_t>(id)] = resident;
    }
  }
  return segments;
}

bool TreeMeter::LookForUnmapped(int64_t limit) {
  const int64_t start = MonotonicNanos();
  if (start < next_look_ns_ || CAISSON_LEFT_OUT("unmapped_memory")) return false;
  LookIntoProcesses(limit);
  segments_ = Segments();
  const int64_t sockets = sockets_.Bytes(limit);
  // Unavailable once PID 1 has ended, which the supervisor learns a moment later, so one failure is tolerated, not two.
  sockets_unmeasured_ = sockets < 0 ? sockets_unmeasured_ + 1 : 0;
  socket_bytes_ = std::max<int64_t>(sockets, 0);
  const int64_t end = MonotonicNanos();
  next_look_ns_ = end + std::max(kUnmappedIntervalNs, (end - start) * kRestAfterLook);
  return true;
}

MemoryMeasure TreeMeter::Memory(const TreeMeasure& quick, int64_t scratch_bytes, int64_t limit) {
  const bool looked = LookForUnmapped(limit);
  MemoryMeasure memory;
  memory.table_bytes = quick.table_bytes;
  memory.file_bytes = Sum(files_);
  memory.segment_bytes = Sum(segments_);
  memory.socket_bytes = socket_bytes_;
  memory.pipe_bytes = pipe_bytes_;
  memory.unmeasured = unmeasured_ + (sockets_unmeasured_ > 1 ? 1 : 0);
  const int64_t kernel = memory.table_bytes + memory.socket_bytes + memory.pipe_bytes;
  const int64_t files = memory.file_bytes + memory.segment_bytes + scratch_bytes;
  memory.bytes = quick.resident_bytes + kernel + files;
  if (memory.bytes <= limit) return memory;
  // An excess must be found twice: processes come and go during the measurement.
  memory.bytes = std::min(ExactBytes(kernel, files, limit), memory.bytes);
  if (memory.bytes > limit) memory.bytes = std::min(ExactBytes(kernel, files, limit), memory.bytes);
  // Memory that was seen some time ago may have been released: only a new search decides.
  const int64_t unmapped = memory.file_bytes + memory.segment_bytes + memory.socket_bytes + memory.pipe_bytes;
  if (!looked && memory.bytes - unmapped <= limit) memory.bytes = std::min(memory.bytes, limit);
  return memory;
}

// Counts each page once: several processes may share it, and pages of files may be mapped as well.
int64_t TreeMeter::ExactBytes(int64_t kernel, int64_t files, int64_t limit) const {
  const std::set<std::string> borrowers = BorrowersOfMemory();
  const Mapped mapped = ProportionalBytes(borrowers);
  const int64_t most = mapped.bytes + kernel + files;
  // Exceeds the limit even if every shared page belonged to a file that is counted already.
  const int64_t least = most - std::min(mapped.shared_bytes, files);
  if (most <= limit || least > limit) return most <= limit ? most : least;
  return BytesOfOwnMappings(borrowers) + kernel + files;
}

}  // namespace caisson::sandbox
