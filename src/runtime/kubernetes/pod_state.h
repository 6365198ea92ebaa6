// What the API server says about a pod, and what that means. Pure functions of bytes that another program sends: they
// are bounded, decoded strictly as far as they are used, and fuzzed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "runtime/witnessed/container.h"

namespace caisson::runtime::kubernetes {

inline constexpr size_t kMaxWatchLineBytes = size_t{4} << 20;

struct PodState {
  enum class Container { kUnknown, kWaiting, kRunning, kTerminated };

  std::string name, node, phase, reason, message;
  std::string resource_version;
  bool deleting = false, deleted = false;
  std::string unschedulable;  // why no node takes it
  std::string disruption;     // why the cluster ends it
  Container container = Container::kUnknown;
  std::string container_reason, container_message;
  int64_t exit_code = 0;
  nlohmann::json spec;

  bool is_running() const { return container == Container::kRunning; }
  bool has_ended() const {
    return deleted || container == Container::kTerminated || phase == "Failed" || phase == "Succeeded";
  }
};

// Text of the cluster for a message: cut when long, safe for a terminal.
std::string Shown(std::string_view text);
// The text at a path of keys; empty when anything on the way is of another kind.
std::string TextAt(const nlohmann::json& document, std::initializer_list<const char*> path);

// The pod of a Job: the object itself, from a list or a watch.
Result<PodState> ReadPod(const nlohmann::json& pod);

// The pods of a list, and the version from which a watch continues it.
struct PodList {
  std::string resource_version;
  std::vector<PodState> pods;
};
Result<PodList> ReadPodList(std::string_view text);

struct WatchEvent {
  enum class Kind { kPod, kBookmark, kExpired };  // kExpired: the version is too old; list again
  Kind kind = Kind::kPod;
  std::string resource_version;
  PodState pod;
};
// One line of a watch. An ERROR event other than an expired version is an error.
Result<WatchEvent> ReadWatchLine(std::string_view line);

// Splits the bytes of a watch into lines.
class WatchLines {
 public:
  void Append(std::string_view bytes) { bytes_.append(bytes); }
  // Absent when the next line is not complete. An error when it is too long: the stream cannot be read any further.
  Result<std::optional<std::string>> Next();

 private:
  std::string bytes_;
  size_t searched_ = 0;
};

// Why a pod will not start, with the fix; nothing while it may still start.
std::optional<Error> FindStartFailure(const PodState& pod);

// What ended a pod whose agent is gone. An error when it was neither the workload nor this process.
Result<witnessed::OuterEnd> JudgeEnd(const PodState& pod);

// Whether an object of the API has everything that was asked for. Absent fields equal empty ones, quantities may be
// spelled otherwise, lists must have the same length: an admission plugin may add defaults, and neither take anything
// away nor add a container, a volume or a variable. Returns the path of what differs; empty: nothing does.
std::string FindDifference(const nlohmann::json& actual, const nlohmann::json& wanted);

}  // namespace caisson::runtime::kubernetes
