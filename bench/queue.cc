// The queue alone: how many jobs per second the store takes in, gives out and ends, with durability as in production,
// for 1, 8 and 64 clients, on SQLite and on a PostgreSQL server of its own.
//
//   queue_bench [SECONDS]      3 for each line; a table for people, then one line of JSON
//
// Each client does the service's steps for one job after the other: Submit (on the disk), Claim, Advance to admitted
// and to running with an event each, Finish with a result (on the disk).
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "store/postgres/postgres.h"
#include "store/sqlite/sqlite.h"
#include "support/postgres_server.h"

namespace caisson::store {
namespace {

enum Operation { kSubmit, kClaim, kAdvance, kFinish, kWhole, kOperations };
constexpr std::array<const char*, kOperations> kNames = {"submit", "claim", "advance", "finish", "job"};

// Nanoseconds, by operation.
using Samples = std::array<std::vector<int64_t>, kOperations>;

void Require(const Error* error) {
  if (error == nullptr) return;
  std::fprintf(stderr, "queue_bench: %s\n", error->message.c_str());
  std::exit(1);
}
template <typename T>
T Need(Result<T> result) {
  Require(result ? nullptr : &result.error());
  return *std::move(result);
}
void Need(const Status& status) { Require(status ? nullptr : &status.error()); }

class Stopwatch {
 public:
  int64_t Lap() {
    const int64_t now = MonotonicNanos();
    return now - std::exchange(last_, now);
  }

 private:
  int64_t last_ = MonotonicNanos();
};

// One client, until `end_nanos`.
Samples Work(Store& store, int client, int64_t end_nanos) {
  Samples samples;
  ClaimOptions options;
  options.worker = "w" + std::to_string(client);
  options.lease_ms = 60'000;
  const auto event = [](const char* type) { return Event{0, UnixMillis(), type, R"({"by": "queue_bench"})"}; };
  for (int64_t number = 0; MonotonicNanos() < end_nanos; ++number) {
    Job job;
    job.submitted_ms = options.now_ms = UnixMillis();
    job.id = std::to_string(MonotonicNanos()) + "-" + std::to_string(client) + "-" + std::to_string(number);
    job.tenant = "tenant " + std::to_string(client % 4);
    job.submitter = "token:bench";
    job.request_id = job.id;
    job.request_digest = job.id;
    job.idempotency_key = job.id;
    job.request = std::string(2000, 'r');
    const int64_t began = MonotonicNanos();
    Stopwatch watch;
    Need(store.Submit(job, {1'000'000, 1'000'000}, job.submitted_ms + 86'400'000, {event("queued")}));
    samples[kSubmit].push_back(watch.Lap());
    const std::vector<Job> claimed = Need(store.Claim(options));
    samples[kClaim].push_back(watch.Lap());
    if (claimed.empty()) continue;  // another client has it
    const Lease lease{claimed.front().id, claimed.front().lease_token};
    watch.Lap();
    Need(store.Advance(lease, JobState::kAdmitted, UnixMillis(), {event("admitted")}));
    samples[kAdvance].push_back(watch.Lap());
    Need(store.Advance(lease, JobState::kRunning, UnixMillis(), {event("running")}));
    samples[kAdvance].push_back(watch.Lap());
    End end;
    end.state = JobState::kSucceeded;
    end.status = "pass";
    end.result = std::string(4000, 's');
    end.now_ms = UnixMillis();
    end.events = {event("ended")};
    Need(store.Finish(lease, end));
    samples[kFinish].push_back(watch.Lap());
    samples[kWhole].push_back(MonotonicNanos() - began);
  }
  return samples;
}

// Of this process: with SQLite all of it, with PostgreSQL the client's part.
double CpuSeconds() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double Milliseconds(const std::vector<int64_t>& sorted, double share) {
  if (sorted.empty()) return 0;
  return static_cast<double>(sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))]) / 1e6;
}

// One line of the table; gives the same as JSON.
std::string Measure(const std::string& name, Store& store, int clients, int seconds) {
  const int64_t began = MonotonicNanos();
  const double cpu_before = CpuSeconds();
  const int64_t end = began + int64_t{seconds} * 1'000'000'000;
  std::mutex mutex;
  Samples all;
  std::vector<std::thread> threads;
  for (int client = 0; client < clients; ++client) {
    threads.emplace_back([&, client] {
      const Samples samples = Work(store, client, end);
      const std::lock_guard<std::mutex> guard(mutex);
      for (int i = 0; i < kOperations; ++i) all[i].insert(all[i].end(), samples[i].begin(), samples[i].end());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double elapsed = static_cast<double>(MonotonicNanos() - began) / 1e9;
  const double rate = static_cast<double>(all[kFinish].size()) / elapsed;
  const double cpu_ms =
      (CpuSeconds() - cpu_before) * 1000 / static_cast<double>(std::max<size_t>(all[kFinish].size(), 1));
  std::printf("%-16s %7d %8.0f %8.2f", name.c_str(), clients, rate, cpu_ms);
  std::string json = "{\"store\": \"" + name + "\", \"clients\": " + std::to_string(clients) +
                     ", \"jobs_per_second\": " + std::to_string(rate) +
                     ", \"cpu_ms_per_job\": " + std::to_string(cpu_ms);
  for (int i = 0; i < kOperations; ++i) {
    std::sort(all[i].begin(), all[i].end());
    const double p50 = Milliseconds(all[i], 0.50);
    const double p99 = Milliseconds(all[i], 0.99);
    std::printf(" %8.2f %8.2f", p50, p99);
    json += std::string(", \"") + kNames[static_cast<size_t>(i)] + "_ms\": {\"p50\": " + std::to_string(p50) +
            ", \"p99\": " + std::to_string(p99) + "}";
  }
  std::printf("\n");
  return json + "}";
}

// The load of the machine, without which the numbers mean little.
std::string LoadAverage() {
  std::ifstream file("/proc/loadavg");
  std::string load;
  file >> load;
  return load;
}

int Main(int seconds) {
  char directory[] = "/var/tmp/caisson-queue-XXXXXX";
  if (::mkdtemp(directory) == nullptr) return 1;
  std::vector<std::unique_ptr<Store>> stores;
  stores.push_back(Need(OpenSqlite(std::string(directory) + "/jobs.db")));
  std::string reason;
  if (caisson::testing::PostgresServer* server = caisson::testing::PostgresServer::Get(&reason)) {
    stores.push_back(Need(OpenPostgres(server->NewDatabase())));
  } else {
    std::fprintf(stderr, "queue_bench: without PostgreSQL: %s\n", reason.c_str());
  }
  const std::string load = LoadAverage();
  std::printf("%u cores, load average before: %s; milliseconds, p50 and p99\n%-16s %7s %8s %8s",
              std::thread::hardware_concurrency(), load.c_str(), "store", "clients", "jobs/s", "cpu/job");
  for (const char* name : kNames) std::printf(" %17s", name);
  std::printf("\n");
  std::string json;
  for (const std::unique_ptr<Store>& store : stores) {
    for (const int clients : {1, 8, 64}) {
      json += (json.empty() ? "" : ", ") + Measure(store->Description(), *store, clients, seconds);
    }
  }
  std::printf("{\"cores\": %u, \"load_average\": %s, \"measurements\": [%s]}\n", std::thread::hardware_concurrency(),
              load.c_str(), json.c_str());
  stores.clear();
  std::filesystem::remove_all(directory);
  return 0;
}

}  // namespace
}  // namespace caisson::store

int main(int argc, char** argv) { return caisson::store::Main(argc > 1 ? std::atoi(argv[1]) : 3); }
