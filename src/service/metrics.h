// Counters for /metrics, in Prometheus' text format. A metric is declared once, with its help, in metrics.cc; docs/
// operator/metrics.md is written from the same table. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace caisson::service {

class Metrics {
 public:
  // `labels` as in the format: `class="TimeoutViolation"`; empty: none.
  void Add(std::string_view name, std::string_view labels = {}, double amount = 1);
  // Mirrors a counter that is kept elsewhere. A smaller number than before means that the counter restarted at 0.
  void Follow(std::string_view name, std::string_view labels, double count);
  void Set(std::string_view name, std::string_view labels, double value);
  // Into a histogram.
  void Observe(std::string_view name, double seconds);

  std::string Text() const;

  enum class Type : uint8_t { kCounter, kGauge, kHistogram };
  struct Description {
    std::string_view name;
    Type type;
    std::string_view help;
  };

 private:
  struct Series {
    double value = 0;
    double followed = 0;  // the count last seen
    std::vector<int64_t> buckets;
    int64_t count = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Series, std::less<>> series_;
};

// `text` made fit for a label's value.
std::string LabelValue(std::string_view text);

}  // namespace caisson::service
