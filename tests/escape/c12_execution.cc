// Code that was not there before: written to a file, to a memfd, to memory. Where that is allowed it must run under the
// same filter and without privileges; `strict` refuses most of it.
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// What the kernel says of a process that was started in an odd way.
Observation Free(const std::string& status) {
  if (status.find("Seccomp:") == std::string::npos) return Blocked(EACCES, "it did not run");
  for (const char* line : {"NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000"}) {
    if (status.find(line) == std::string::npos) return Escaped(std::string("not ") + line);
  }
  return Blocked(0, "it runs under the same filter");
}

// The status that `cat /proc/self/status` prints when started by `start`.
Observation Started(const std::function<void(char* const* argv, char* const* envp)>& start) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return NotApplicable("no pipe");
  const Ended ended = InChild([&] {
    ::dup2(ends[1], 1);
    char name[] = "cat", file[] = "/proc/self/status";
    char* argv[] = {name, file, nullptr};
    char* envp[] = {nullptr};
    start(argv, envp);
    return errno;
  });
  ::close(ends[1]);
  std::string status;
  char chunk[4096];
  for (ssize_t size; (size = ::read(ends[0], chunk, sizeof(chunk))) > 0;)
    status.append(chunk, static_cast<size_t>(size));
  ::close(ends[0]);
  if (status.empty() && ended.exited) return Blocked(ended.code);
  return Free(status);
}

bool Copy(int to) {
  const int from = ::open("/bin/cat", O_RDONLY | O_CLOEXEC);
  char chunk[16384];
  for (ssize_t size; (size = ::read(from, chunk, sizeof(chunk))) > 0;) {
    if (::write(to, chunk, static_cast<size_t>(size)) != size) return false;
  }
  ::close(from);
  return true;
}

Observation Memory() {
  const long memory = Call(SYS_memfd_create, "cat", MFD_CLOEXEC);
  if (memory < 0) return Blocked(static_cast<int>(-memory));
  if (!Copy(static_cast<int>(memory))) return NotApplicable("cannot copy a program");
  return Started(
      [&](char* const* argv, char* const* envp) { Call(SYS_execveat, memory, "", argv, envp, AT_EMPTY_PATH); });
}

Observation Descriptor() {
  const int program = ::open("/bin/cat", O_RDONLY | O_CLOEXEC);
  return Started(
      [&](char* const* argv, char* const* envp) { Call(SYS_execveat, program, "", argv, envp, AT_EMPTY_PATH); });
}

Observation File(const std::string& directory) {
  const std::string path = directory + "/cat-" + std::to_string(::getpid());
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
  const bool copied = fd >= 0 && Copy(fd);
  if (fd >= 0) ::close(fd);
  Observation saw = copied ? Started([&](char* const* argv, char* const* envp) { ::execve(path.c_str(), argv, envp); })
                           : NotApplicable("cannot copy a program");
  ::unlink(path.c_str());
  return saw;
}

// The loader runs a program that it may only read.
Observation Loader() {
  return Started([](char* const*, char* const* envp) {
    char loader[] = "ld.so", program[] = "/bin/cat", file[] = "/proc/self/status";
    char* argv[] = {loader, program, file, nullptr};
    ::execve("/lib64/ld-linux-x86-64.so.2", argv, envp);
  });
}

Observation WriteAndExecute() {
  Tally tally;
  const auto map = [&](const char* name, int protection, int flags) {
    void* page = ::mmap(nullptr, 4096, protection, flags | MAP_ANONYMOUS, -1, 0);
    tally.Add(name, page == MAP_FAILED ? -errno : 0);
  };
  map("mmap", PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE);
  map("shared", PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED);
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  tally.Add("mprotect", Call(SYS_mprotect, page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC));
  tally.Add("pkey_mprotect", Call(SYS_pkey_mprotect, page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, -1));
  return tally.Sum();
}

// What strict adds. Only where it runs at all: it refuses to without cgroups.
Judgement JudgeStrict(Host& host) {
  struct Case {
    const char* id;
    int error;
    bool reported;
  };
  // The profile itself asks for a kernel of its own; its walls hold on this one too.
  const std::string profile =
      host.WriteFile("strict-here.yaml", "version: 1\nname: strict-here\nextends: strict\nstrength: native\n");
  for (const Case& tried : {Case{"C12/memfd", EPERM, true}, Case{"C12/descriptor", EPERM, true},
                            Case{"C12/write_and_execute", EACCES, false}}) {
    const auto bare = host.RunControl(tried.id).Saw(tried.id);
    if (!bare || bare->seen != Seen::kEscaped) return Vacuous(std::string(tried.id) + " does not work bare either");
    const Outcome run = host.Run({.command = host.ProbeCommand(tried.id), .flags = {"--profile", profile}});
    if (run.result && run.result->status == "error") return Vacuous("strict does not run here: " + run.result->message);
    const auto inside = run.Saw(tried.id);
    if (!inside) return Broken(std::string(tried.id) + " in strict said nothing: " + run.process.err);
    if (inside->seen != Seen::kBlocked || inside->error != tried.error)
      return Broken(std::string(tried.id) + " in strict: " + inside->detail);
    if (tried.reported != (run.result->Find("SyscallViolation", "fs.exec") != nullptr))
      return Broken(std::string(tried.id) + " in strict: not reported as it should be");
  }
  return Held("strict refuses it");
}

Attempt Under(const char* name, std::function<Observation()> probe) {
  return {.name = name, .probe = std::move(probe), .expect = {}};
}

const Registration kRow(Row{
    .id = "C12",
    .title = "executing new code: memfd, descriptor, /tmp, /dev/shm, ld.so, W+X memory",
    .severity = Severity::kEscape,
    .walls = {"no_new_privs", "seccomp", "capabilities"},
    .attempts = {Under("memfd", Memory),
                 Under("descriptor", Descriptor),
                 Under("scratch", [] { return File(WritableDirectory()); }),
                 Under("tmp", [] { return File("/tmp"); }),
                 Under("shm", [] { return File("/dev/shm"); }),
                 Under("loader", Loader),
                 {.name = "write_and_execute", .probe = WriteAndExecute, .judge_only = true}},
    .judge = JudgeStrict,
});

}  // namespace

}  // namespace caisson::escape
