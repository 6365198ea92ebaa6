// Objects with a key or a name: System V memory, semaphores and queues, POSIX queues, /dev/shm. What one sandbox makes,
// another must not find.
#include <fcntl.h>
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "escape/neighbour.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

key_t Key() {
  const char* key = ::getenv("SELFTEST_KEY");
  return key != nullptr ? static_cast<key_t>(std::atoi(key)) : 0;
}

std::string Name() { return "/caisson-selftest-" + std::to_string(Key()); }

// The file a program would make when it has no better place; in every one that is usual.
constexpr const char* kPlaces[] = {"/dev/shm", "/tmp"};

Observation Make() {
  const int memory = ::shmget(Key(), 4096, IPC_CREAT | IPC_EXCL | 0666);
  const int semaphore = ::semget(Key(), 1, IPC_CREAT | IPC_EXCL | 0666);
  const int queue = ::msgget(Key(), IPC_CREAT | IPC_EXCL | 0666);
  const mqd_t named = ::mq_open(Name().c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666, nullptr);
  // Landlock refuses named queues inside altogether; bare they count.
  int made = (memory >= 0) + (semaphore >= 0) + (queue >= 0) + (named >= 0 || !IsControl());
  for (const char* place : kPlaces) {
    const UniqueFd fd(::open((place + Name()).c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666));
    if (fd) ++made;
  }
  if (made == 6) SayReadyAndWait();
  // On the host they would stay.
  if (memory >= 0) ::shmctl(memory, IPC_RMID, nullptr);
  if (semaphore >= 0) ::semctl(semaphore, 0, IPC_RMID);
  if (queue >= 0) ::msgctl(queue, IPC_RMID, nullptr);
  if (named >= 0) ::mq_unlink(Name().c_str());
  for (const char* place : kPlaces) ::unlink((place + Name()).c_str());
  return made == 6 ? Blocked(0, "made all") : NotApplicable("made only " + std::to_string(made));
}

long Result(long value) { return value < 0 ? -errno : value; }

Observation Find() {
  Tally tally;
  tally.Add("memory", Result(::shmget(Key(), 0, 0)));
  tally.Add("semaphore", Result(::semget(Key(), 0, 0)));
  tally.Add("queue", Result(::msgget(Key(), 0)));
  tally.Add("named queue", Result(::mq_open(Name().c_str(), O_RDONLY | O_CLOEXEC)));
  for (const char* place : kPlaces) tally.Add(place, Result(::access((place + Name()).c_str(), F_OK)));
  struct shm_info info {};
  // Not by its key but by its place in the kernel's table.
  tally.Add("table",
            ::shmctl(0, SHM_INFO, reinterpret_cast<struct shmid_ds*>(&info)) >= 0 && info.used_ids > 0 ? 0 : -ENOENT);
  return tally.Sum();
}

Judgement JudgeNeighbour(Host& host) {
  const Environment env = {{"SELFTEST_KEY", std::to_string(0x43a00000 + ::getpid())}};
  {
    Neighbour bare = Neighbour::Bare(host, "D03/make", env);
    const auto saw = SawBare(host, "D03/find", env);
    bare.End();
    if (!saw || saw->seen != Seen::kEscaped)
      return Vacuous("bare programs do not find each other's objects: " + (saw ? saw->detail : ""));
  }
  Neighbour a = Neighbour::InSandbox(host, "D03/make", env);
  if (!a.ready()) return Broken("the neighbour made nothing: " + a.End().process.out);
  const auto on_host = SawBare(host, "D03/find", env);
  const Outcome b = host.Run({.command = host.ProbeCommand("D03/find"), .env = env});
  a.End();
  const auto saw = b.Saw("D03/find");
  if (!saw || !on_host) return Broken("the probe said nothing: " + b.process.err);
  if (saw->seen != Seen::kBlocked) return Broken("neighbour: " + saw->detail);
  // There the table may hold the host's own.
  for (const char* kind : {"memory", "semaphore", "queue", "/dev/shm", "/tmp"}) {
    const size_t found = on_host->detail.find(kind), refused = on_host->detail.find("refused:");
    if (on_host->seen != Seen::kBlocked && found < refused) return Broken(std::string("the host sees ") + kind);
  }
  return Held("neither the neighbour nor the host finds them");
}

const Registration kRow(Row{
    .id = "D03",
    .title = "shared memory, semaphores, queues, /dev/shm of another sandbox",
    .severity = Severity::kLateral,
    .walls = {"ipc namespace", "own scratch", "mount namespace"},
    .attempts = {{.name = "make", .probe = Make, .judge_only = true},
                 {.name = "find", .probe = Find, .judge_only = true}},
    .judge = JudgeNeighbour,
});

}  // namespace

}  // namespace caisson::escape
