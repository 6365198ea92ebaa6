// Taking jobs out of the queue. The cost of a claim grows with the number of tenants that have ready jobs and with the
// leases they hold, not with the number of waiting jobs: every statement below uses one index of exactly those rows
// that it takes or moves.
#include "store/sql/claiming.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <tuple>

#include "store/sql/rows.h"
#include "store/sql/sql_store.h"
#include "store/sql/steps.h"

namespace caisson::store::sql {
namespace {

struct Tenant {
  std::string name;
  int64_t leases = 0;
  int64_t turn = 0;  // when it was last served; 0: never
  bool empty = false;
};

Result<std::string> NewToken() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Error::System(errno, "getrandom for a lease");
  }
  constexpr char kDigits[] = "0123456789abcdef";
  std::string token;
  for (const unsigned char byte : bytes) {
    token += kDigits[byte >> 4];
    token += kDigits[byte & 15];
  }
  return token;
}

int64_t LimitOf(const ClaimOptions& options, const std::string& tenant) {
  const auto named = options.tenant_limits.find(tenant);
  return named == options.tenant_limits.end() ? options.tenant_limit : named->second;
}

// The tenant whose turn it is, or nullptr if no tenant may have another job.
Tenant* Next(const ClaimOptions& options, std::vector<Tenant>* tenants) {
  Tenant* next = nullptr;
  for (Tenant& tenant : *tenants) {
    const int64_t limit = LimitOf(options, tenant.name);
    if (tenant.empty || (limit > 0 && tenant.leases >= limit)) continue;
    if (next == nullptr || std::tie(tenant.leases, tenant.turn) < std::tie(next->leases, next->turn)) next = &tenant;
  }
  return next;
}

Job ReadClaimed(const Row& row) {
  Job job = ReadJob(row);
  job.request = row.Text(kJobColumns);
  return job;
}

// One job with a lease of its own, or none.
Result<std::optional<Job>> TakeNextOf(Session& session, const std::string& tenant, const ClaimOptions& options) {
  CAISSON_TRY(const std::string token, NewToken());
  std::optional<Job> job;
  CAISSON_TRY_VOID(session.Run(kClaimNext,
                               {tenant, token, options.worker, options.now_ms + options.lease_ms, options.now_ms},
                               [&](const Row& row) { job = ReadClaimed(row); }));
  return job;
}

Result<std::optional<Job>> TakeNextOverdue(Session& session, const ClaimOptions& options) {
  CAISSON_TRY(const std::string token, NewToken());
  std::optional<Job> job;
  CAISSON_TRY_VOID(session.Run(kTakeOverdue, {options.now_ms, token, options.worker, options.now_ms + options.lease_ms},
                               [&](const Row& row) { job = ReadClaimed(row); }));
  return job;
}

}  // namespace

Result<std::vector<Job>> SqlStore::Claim(const ClaimOptions& options) {
  return Write<std::vector<Job>>(Durability::kPrompt, [&](Session& session, std::vector<Job>& given) -> Status {
    CAISSON_TRY_VOID(session.Post(kPromote, {options.now_ms}));
    CAISSON_TRY_VOID(session.Post(kMarkOverdue, {options.now_ms}));
    // Limits and turns apply to all workers together, so claims are serialised from here on. They are short and do not
    // wait for the disk.
    CAISSON_TRY_VOID(session.EnterAlone());
    std::vector<Tenant> tenants;
    int64_t latest = 0;
    CAISSON_TRY_VOID(session.Run(kTenantsReady, {}, [&](const Row& row) {
      tenants.push_back({row.Text(0), row.Int(1), row.Int(2), false});
      latest = row.Int(3);
    }));
    std::map<std::string, int64_t> waiting;
    while (static_cast<int64_t>(given.size()) < options.max_jobs) {
      Tenant* tenant = Next(options, &tenants);
      if (tenant == nullptr) break;
      CAISSON_TRY(std::optional<Job> job, TakeNextOf(session, tenant->name, options));
      if (!job) {
        tenant->empty = true;  // another transaction holds the remaining jobs
        continue;
      }
      ++tenant->leases;
      tenant->turn = ++latest;
      --waiting[tenant->name];
      given.push_back(*std::move(job));
    }
    for (const Tenant& tenant : tenants) {
      if (waiting.count(tenant.name) > 0) CAISSON_TRY_VOID(session.Post(kServe, {tenant.name, tenant.turn}));
    }
    return AddWaiting(session, waiting);
  });
}

Result<std::vector<Job>> SqlStore::TakeOverdue(const ClaimOptions& options) {
  return Write<std::vector<Job>>(Durability::kPrompt, [&](Session& session, std::vector<Job>& given) -> Status {
    CAISSON_TRY_VOID(session.Post(kMarkOverdue, {options.now_ms}));
    std::map<std::string, int64_t> waiting;
    while (static_cast<int64_t>(given.size()) < options.max_jobs) {
      CAISSON_TRY(std::optional<Job> job, TakeNextOverdue(session, options));
      if (!job) break;
      --waiting[job->tenant];
      given.push_back(*std::move(job));
    }
    return AddWaiting(session, waiting);
  });
}

Result<std::vector<LeaseFate>> SqlStore::Renew(const std::vector<Lease>& leases, int64_t until_ms) {
  return Write<std::vector<LeaseFate>>(
      Durability::kPrompt, [&](Session& session, std::vector<LeaseFate>& given) -> Status {
        given.assign(leases.size(), LeaseFate::kLost);
        // In the order of job ids: two workers that renew the same leases must not deadlock.
        std::vector<size_t> order(leases.size());
        for (size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return leases[a].job_id < leases[b].job_id; });
        for (const size_t i : order) {
          if (leases[i].token.empty()) continue;
          CAISSON_TRY_VOID(session.Run(kRenew, {leases[i].job_id, leases[i].token, until_ms}, [&](const Row& row) {
            given[i] = row.Int(0) != 0 ? LeaseFate::kCancelled : LeaseFate::kKept;
          }));
        }
        return {};
      });
}

Result<std::vector<Job>> SqlStore::LapsedLeases(int64_t now_ms, int64_t limit) {
  return Read<std::vector<Job>>([&](Session& session, std::vector<Job>& given) -> Status {
    CAISSON_TRY_VOID(
        session.Run(kLapsedLeases, {now_ms, limit}, [&](const Row& row) { given.push_back(ReadJob(row)); }));
    return {};
  });
}

}  // namespace caisson::store::sql
