// The SQL of claiming, in a header so that a test can ask the database for the query plans.
#pragma once

#include "store/sql/rows.h"

namespace caisson::store::sql {

// Lanes: 0 none, 1 overdue, 2 ready, 3 delayed, 4 approval.
static_assert(Lane::kNone == Lane{0} && Lane::kOverdue == Lane{1} && Lane::kReady == Lane{2} &&
              Lane::kDelayed == Lane{3} && Lane::kApproval == Lane{4});

// Each job is moved once in its life by each of these two, so the claims share their cost evenly.
inline constexpr char kPromote[] =
    "UPDATE jobs SET lane = 2 WHERE id IN "
    "(SELECT id FROM jobs WHERE lane = 3 AND not_before_ms <= $1 FOR UPDATE SKIP LOCKED)";
inline constexpr char kMarkOverdue[] =
    "UPDATE jobs SET lane = 1 WHERE id IN "
    "(SELECT id FROM jobs WHERE lane > 1 AND deadline_ms > 0 AND deadline_ms <= $1 FOR UPDATE SKIP LOCKED)";

// Steps from tenant to tenant along the index, one step per tenant regardless of its number of jobs. Every lease has a
// time; the condition makes the planner use the index of leases instead of that of all jobs of the tenant.
inline constexpr char kTenantsReady[] =
    "WITH RECURSIVE ready (tenant) AS ("
    "SELECT (SELECT tenant FROM jobs WHERE lane = 2 ORDER BY tenant LIMIT 1) UNION ALL "
    "SELECT (SELECT tenant FROM jobs WHERE lane = 2 AND tenant > ready.tenant ORDER BY tenant LIMIT 1) "
    "FROM ready WHERE ready.tenant IS NOT NULL) "
    "SELECT tenant, "
    "(SELECT count(*) FROM jobs WHERE lease_token <> '' AND jobs.tenant = ready.tenant AND lease_until_ms > 0), "
    "coalesce((SELECT turn FROM turns WHERE turns.tenant = ready.tenant), 0), "
    "coalesce((SELECT turn FROM turns ORDER BY turn DESC LIMIT 1), 0) "
    "FROM ready WHERE tenant IS NOT NULL";

inline constexpr char kServe[] =
    "INSERT INTO turns (tenant, turn) VALUES ($1, $2) ON CONFLICT (tenant) DO UPDATE SET turn = excluded.turn";

#define CAISSON_LEASE_IT "UPDATE jobs SET lane = 0, lease_token = $2, worker = $3, lease_until_ms = $4 WHERE id = "
#define CAISSON_GIVE_WHOLE \
  " RETURNING " CAISSON_JOB_COLUMNS ", (SELECT body FROM requests WHERE requests.job_id = jobs.id)"
// Overdue ones have left the lane, but for those that another transaction held while kMarkOverdue ran.
inline constexpr char kClaimNext[] = CAISSON_LEASE_IT
    "(SELECT id FROM jobs WHERE lane = 2 AND tenant = $1 AND (deadline_ms = 0 OR deadline_ms > $5) "
    "ORDER BY priority DESC, id LIMIT 1 FOR UPDATE SKIP LOCKED)" CAISSON_GIVE_WHOLE;
inline constexpr char kTakeOverdue[] = CAISSON_LEASE_IT
    "(SELECT id FROM jobs WHERE lane = 1 AND deadline_ms <= $1 ORDER BY id LIMIT 1 FOR UPDATE SKIP "
    "LOCKED)" CAISSON_GIVE_WHOLE;
#undef CAISSON_LEASE_IT
#undef CAISSON_GIVE_WHOLE

inline constexpr char kRenew[] =
    "UPDATE jobs SET lease_until_ms = $3 WHERE id = $1 AND lease_token = $2 RETURNING cancel_requested";
inline constexpr char kLapsedLeases[] =
    "SELECT " CAISSON_JOB_COLUMNS
    " FROM jobs WHERE lease_token <> '' AND lease_until_ms < $1 ORDER BY lease_until_ms LIMIT $2";

}  // namespace caisson::store::sql
