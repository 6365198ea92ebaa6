#include "service/metrics.h"

#include <array>
#include <cstdio>
#include <vector>

#include "base/check.h"

namespace caisson::service {
namespace {

using Type = Metrics::Type;

constexpr Metrics::Description kMetrics[] = {
    {"caisson_jobs", Type::kGauge, "Jobs in the store by state"},
    {"caisson_queue_waiting", Type::kGauge, "Jobs waiting by tenant"},
    {"caisson_queue_oldest_seconds", Type::kGauge, "Age of the oldest job that could run"},
    {"caisson_approvals_pending", Type::kGauge, "Approvals without an answer"},
    {"caisson_workers", Type::kGauge, "Workers by what they do: busy, idle"},
    {"caisson_sessions", Type::kGauge, "Agent sessions of this service by state"},
    {"caisson_sessions_opened_total", Type::kCounter, "Agent sessions by outcome of opening: open, failed"},
    {"caisson_session_commands_total", Type::kCounter, "Commands started in agent sessions"},
    {"caisson_submitted_total", Type::kCounter,
     "Submitted jobs by outcome: new, existing, conflict, full, invalid, denied"},
    {"caisson_results_total", Type::kCounter, "Ended jobs by status and class"},
    {"caisson_attempts_failed_total", Type::kCounter, "Attempts without a verdict, by cause"},
    {"caisson_dead_letters_total", Type::kCounter, "Jobs given up"},
    {"caisson_leases_lost_total", Type::kCounter, "Leases that this service lost while it worked"},
    {"caisson_launcher_restarts_total", Type::kCounter, "Launchers that died and were replaced"},
    {"caisson_pool_members", Type::kGauge,
     "Sandboxes kept ready by start (parked, zygote) and state (ready, preparing)"},
    {"caisson_pool_taken_total", Type::kCounter, "Runs that began in a sandbox kept ready, by start"},
    {"caisson_pool_missed_total", Type::kCounter, "Runs that found none ready, by start"},
    {"caisson_pool_died_total", Type::kCounter, "Sandboxes kept ready that ended unused and were replaced, by start"},
    {"caisson_interpreters_died_total", Type::kCounter, "Interpreters to fork from that died and were replaced"},
    {"caisson_audit_usable", Type::kGauge, "1 while the audit log can be written; at 0 no job is accepted"},
    {"caisson_store_errors_total", Type::kCounter, "Failed database calls"},
    {"caisson_callbacks_total", Type::kCounter, "Callbacks by outcome: delivered, retried, given_up, refused"},
    {"caisson_blob_bytes", Type::kGauge, "Bytes of results, artifacts and archives on the disk"},
    {"caisson_network_connections_total", Type::kCounter,
     "Connections of jobs to the outside by tenant and decision: allowed, denied"},
    {"caisson_network_bytes_total", Type::kCounter,
     "Bytes of jobs to and from the outside by tenant and direction: in, out"},
    {"caisson_http_requests_total", Type::kCounter, "HTTP requests by route and status"},
    {"caisson_wait_seconds", Type::kHistogram, "From submission to the beginning of the attempt"},
    {"caisson_start_seconds", Type::kHistogram, "From the beginning of an attempt until its sandbox is set up"},
    {"caisson_run_seconds", Type::kHistogram, "From the beginning of an attempt to its verdict"},
    {"caisson_http_seconds", Type::kHistogram, "From a request's last byte to its answer"},
};
constexpr std::array<double, 16> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                            0.5,   1,      2.5,   5,    10,    30,   60,  180};
constexpr const char* kTypeNames[] = {"counter", "gauge", "histogram"};

const Metrics::Description& Find(std::string_view name) {
  for (const Metrics::Description& metric : kMetrics) {
    if (metric.name == name) return metric;
  }
  CAISSON_CHECK(false);
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.15g", value);
  return text;
}

void Line(std::string& text, std::string_view name, std::string_view suffix, std::string_view labels, double value) {
  text.append(name).append(suffix);
  if (!labels.empty()) text.append("{").append(labels).append("}");
  text.append(" ").append(Number(value)).append("\n");
}

}  // namespace

void Metrics::Add(std::string_view name, std::string_view labels, double amount) {
  CAISSON_CHECK(Find(name).type == Type::kCounter);
  const std::lock_guard lock(mutex_);
  series_[{std::string(name), std::string(labels)}].value += amount;
}

void Metrics::Follow(std::string_view name, std::string_view labels, double count) {
  CAISSON_CHECK(Find(name).type == Type::kCounter);
  const std::lock_guard lock(mutex_);
  Series& series = series_[{std::string(name), std::string(labels)}];
  series.value += count < series.followed ? count : count - series.followed;
  series.followed = count;
}

void Metrics::Set(std::string_view name, std::string_view labels, double value) {
  CAISSON_CHECK(Find(name).type == Type::kGauge);
  const std::lock_guard lock(mutex_);
  series_[{std::string(name), std::string(labels)}].value = value;
}

void Metrics::Observe(std::string_view name, double seconds) {
  CAISSON_CHECK(Find(name).type == Type::kHistogram);
  const std::lock_guard lock(mutex_);
  Series& series = series_[{std::string(name), std::string()}];
  series.buckets.resize(kBounds.size());
  for (size_t i = 0; i < kBounds.size(); ++i) series.buckets[i] += seconds <= kBounds[i] ? 1 : 0;
  series.value += seconds;
  ++series.count;
}

std::string Metrics::Text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const Description& metric : kMetrics) {
    bool first = true;
    for (auto it = series_.lower_bound({std::string(metric.name), std::string()});
         it != series_.end() && it->first.first == metric.name; ++it) {
      if (first) {
        text.append("# HELP ").append(metric.name).append(" ").append(metric.help).append("\n");
        text.append("# TYPE ").append(metric.name).append(" ");
        text.append(kTypeNames[static_cast<size_t>(metric.type)]).append("\n");
        first = false;
      }
      const Series& series = it->second;
      if (metric.type != Type::kHistogram) {
        Line(text, metric.name, "", it->first.second, series.value);
        continue;
      }
      for (size_t i = 0; i < kBounds.size(); ++i) {
        Line(text, metric.name, "_bucket", "le=\"" + Number(kBounds[i]) + "\"", static_cast<double>(series.buckets[i]));
      }
      Line(text, metric.name, "_bucket", "le=\"+Inf\"", static_cast<double>(series.count));
      Line(text, metric.name, "_sum", "", series.value);
      Line(text, metric.name, "_count", "", static_cast<double>(series.count));
    }
  }
  return text;
}

std::string LabelValue(std::string_view text) {
  std::string value;
  for (const char c : text) {
    if (c == '"' || c == '\\') value.push_back('\\');
    if (static_cast<unsigned char>(c) >= ' ') value.push_back(c);
  }
  return value;
}

}  // namespace caisson::service
