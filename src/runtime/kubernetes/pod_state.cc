#include "runtime/kubernetes/pod_state.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/utf8.h"
#include "base/words.h"

namespace caisson::runtime::kubernetes {

using nlohmann::json;
using Container = PodState::Container;

namespace {

constexpr char kContainer[] = "workload";
constexpr int kMaxDepth = 64;
const json kNothing;

const json& At(const json& object, const char* key) {
  if (!object.is_object()) return kNothing;
  const auto found = object.find(key);
  return found != object.end() ? *found : kNothing;
}

std::string Text(const json& object, const char* key) {
  const json& value = At(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

Result<json> Parse(std::string_view text) {
  // Deeper values, which no object of the API has, are dropped: what walks through a document needs stack for each
  // level.
  const auto keep = [](int depth, json::parse_event_t, json&) { return depth <= kMaxDepth; };
  json document = json::parse(text, keep, false);
  if (!document.is_object()) return Error::Invalid("the API server sent something that is no JSON object");
  return document;
}

void ReadConditions(const json& conditions, PodState& state) {
  if (!conditions.is_array()) return;
  for (const json& condition : conditions) {
    const std::string type = Text(condition, "type"), status = Text(condition, "status");
    if (type == "PodScheduled" && status == "False" && Text(condition, "reason") == "Unschedulable")
      state.unschedulable = Text(condition, "message");
    if (type == "DisruptionTarget" && status == "True")
      state.disruption = Text(condition, "reason") + ": " + Text(condition, "message");
  }
}

void ReadContainer(const json& statuses, PodState& state) {
  if (!statuses.is_array()) return;
  for (const json& status : statuses) {
    if (Text(status, "name") != kContainer) continue;
    const json& current = At(status, "state");
    for (const auto& [key, kind] : {std::pair{"waiting", Container::kWaiting},
                                    {"running", Container::kRunning},
                                    {"terminated", Container::kTerminated}}) {
      const json& detail = At(current, key);
      if (!detail.is_object()) continue;
      state.container = kind;
      state.container_reason = Text(detail, "reason");
      state.container_message = Text(detail, "message");
      const json& code = At(detail, "exitCode");
      state.exit_code = code.is_number_integer() ? code.get<int64_t>() : 0;
    }
  }
}

// "reason: message", of which either may be empty.
std::string Join(const std::string& reason, const std::string& message) {
  return Shown(reason) + (reason.empty() || message.empty() ? "" : ": ") + Shown(message);
}

std::string Where(const PodState& pod) { return pod.node.empty() ? "" : " on node " + Shown(pod.node); }

struct Waiting {
  const char* reason;
  const char* fix;
};
constexpr Waiting kHopeless[] = {
    {"ImagePullBackOff", "check the setting image, the registry, and the namespace's pull secrets"},
    {"ErrImagePull", "check the setting image, the registry, and the namespace's pull secrets"},
    {"ErrImageNeverPull", "pull_policy is Never and the node lacks the image; import it there"},
    {"InvalidImageName", "correct the setting image"},
    {"CreateContainerConfigError", "check the setting seccomp_profile, whose file every node must have"},
    {"CreateContainerError", "check the setting seccomp_profile, whose file every node must have"},
    {"RunContainerError", "the node's container runtime refused the pod"},
    {"StartError", "the image must have caisson-agent at /.caisson/agent (./dev cluster image writes one)"},
    {"ContainerCannotRun", "the image must have caisson-agent at /.caisson/agent (./dev cluster image writes one)"},
};

// The value of a quantity ("128Mi", "2", "2000m"); nothing for other text.
std::optional<double> ReadQuantity(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  const std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
  constexpr std::pair<std::string_view, double> kSuffixes[] = {
      {"", 1},     {"m", 1e-3},    {"k", 1e3},        {"M", 1e6},           {"G", 1e9},
      {"T", 1e12}, {"Ki", 1024.0}, {"Mi", 1048576.0}, {"Gi", 1073741824.0}, {"Ti", 1099511627776.0}};
  for (const auto& [name, factor] : kSuffixes) {
    if (suffix == name) return number * factor;
  }
  return std::nullopt;
}

// Fields that are true where they are absent.
constexpr std::string_view kTrueUnlessSet[] = {"allowPrivilegeEscalation", "automountServiceAccountToken",
                                               "enableServiceLinks", "hostUsers"};

bool IsEmpty(const json& value) {
  return value.is_null() || value == false || value == 0 || value == "" || (value.is_structured() && value.empty());
}

}  // namespace

std::string Shown(std::string_view text) {
  constexpr size_t kMost = 1000;
  return EscapeForTerminal(text.substr(0, kMost)) + (text.size() > kMost ? "…" : "");
}

std::string TextAt(const json& document, std::initializer_list<const char*> path) {
  const json* value = &document;
  for (const char* key : path) value = &At(*value, key);
  return value->is_string() ? value->get<std::string>() : std::string();
}

Result<PodState> ReadPod(const json& pod) {
  PodState state;
  const json& metadata = At(pod, "metadata");
  const json& status = At(pod, "status");
  state.name = Text(metadata, "name");
  state.resource_version = Text(metadata, "resourceVersion");
  if (state.name.empty() || state.resource_version.empty())
    return Error::Invalid("the API server sent a pod without a name or a version");
  state.deleting = At(metadata, "deletionTimestamp").is_string();
  state.spec = At(pod, "spec");
  state.node = Text(state.spec, "nodeName");
  state.phase = Text(status, "phase");
  state.reason = Text(status, "reason");
  state.message = Text(status, "message");
  ReadConditions(At(status, "conditions"), state);
  ReadContainer(At(status, "containerStatuses"), state);
  return state;
}

Result<PodList> ReadPodList(std::string_view text) {
  CAISSON_TRY(const json document, Parse(text));
  PodList list;
  list.resource_version = Text(At(document, "metadata"), "resourceVersion");
  const json& items = At(document, "items");
  if (list.resource_version.empty() || !(items.is_array() || items.is_null()))
    return Error::Invalid("the API server sent a list without a version or items");
  for (const json& item : items) {
    CAISSON_TRY(PodState pod, ReadPod(item));
    list.pods.push_back(std::move(pod));
  }
  return list;
}

Result<WatchEvent> ReadWatchLine(std::string_view line) {
  CAISSON_TRY(const json document, Parse(line));
  const std::string type = Text(document, "type");
  const json& object = At(document, "object");
  WatchEvent event;
  if (type == "ERROR") {
    const json& code = At(object, "code");
    if (code != 410)
      return Error{ErrorKind::kSystem, EPROTO, "watch: " + Join(Text(object, "reason"), Text(object, "message"))};
    event.kind = WatchEvent::Kind::kExpired;
    return event;
  }
  event.resource_version = Text(At(object, "metadata"), "resourceVersion");
  if (type == "BOOKMARK") {
    if (event.resource_version.empty()) return Error::Invalid("watch: a bookmark without a version");
    event.kind = WatchEvent::Kind::kBookmark;
    return event;
  }
  if (type != "ADDED" && type != "MODIFIED" && type != "DELETED")
    return Error::Invalid("watch: an event of the unknown type " + Quoted(type));
  CAISSON_TRY(event.pod, ReadPod(object));
  event.pod.deleted = type == "DELETED";
  return event;
}

Result<std::optional<std::string>> WatchLines::Next() {
  const size_t end = bytes_.find('\n', searched_);
  if (end == std::string::npos) {
    searched_ = bytes_.size();
    if (searched_ > kMaxWatchLineBytes) return Error::Invalid("watch: a line is too long");
    return std::optional<std::string>();
  }
  std::string line = bytes_.substr(0, end);
  bytes_.erase(0, end + 1);
  searched_ = 0;
  return std::optional<std::string>(std::move(line));
}

std::optional<Error> FindStartFailure(const PodState& pod) {
  const std::string where = Where(pod);
  for (const Waiting& waiting : kHopeless) {
    const bool given_up = pod.container == Container::kWaiting || pod.container == Container::kTerminated;
    if (given_up && pod.container_reason == waiting.reason)
      return Error::Unsupported("runtime kubernetes: the pod does not start" + where + ": " +
                                Join(pod.container_reason, pod.container_message) + "; fix: " + waiting.fix);
  }
  if (!pod.has_ended()) return std::nullopt;
  if (pod.container == Container::kTerminated && pod.container_reason != "OOMKilled" && pod.reason.empty())
    return Error::Unsupported("runtime kubernetes: caisson-agent ended at once" + where + ": " +
                              Join(pod.container_reason, pod.container_message) + " (exit code " +
                              std::to_string(pod.exit_code) + "); the image must have the agent of this build");
  const Result<witnessed::OuterEnd> end = JudgeEnd(pod);
  if (!end) return end.error();
  return Error{ErrorKind::kSystem, ECHILD,
               "runtime kubernetes: the pod ended" + where + " before it was used" +
                   (end->memory_limit ? ": OOMKilled; the memory limit is too small" : "")};
}

Result<witnessed::OuterEnd> JudgeEnd(const PodState& pod) {
  witnessed::OuterEnd end;
  const std::string where = Where(pod);
  // SECURITY: the reason counts, not the exit code: a workload that survives the death of its child ends with 0.
  if (pod.container == Container::kTerminated && pod.container_reason == "OOMKilled") {
    end.memory_limit = true;
    end.evidence = {{"container_reason", pod.container_reason}, {"container_exit_code", pod.exit_code}};
    return end;
  }
  const auto ended = [&](const std::string& by) {
    return Error{ErrorKind::kSystem, ECHILD, "runtime kubernetes: the cluster ended the pod" + where + ": " + by};
  };
  // Evicted, Preempting, DeadlineExceeded, NodeLost, NodeAffinity, Shutdown, …: all name an end by the cluster.
  if (!pod.reason.empty()) return ended(Join(pod.reason, pod.message));
  if (!pod.disruption.empty()) return ended(Shown(pod.disruption));
  if (pod.container == Container::kTerminated && pod.container_reason == "StartError")
    return ended(Join(pod.container_reason, pod.container_message));
  if (pod.deleted || pod.deleting)
    return ended("it was deleted; another client of the cluster, a drain or a quota did that");
  if (!pod.has_ended())
    return Error{ErrorKind::kSystem, EHOSTDOWN,
                 "runtime kubernetes: the stream to the pod ended, and its node" +
                     (pod.node.empty() ? "" : " " + Shown(pod.node)) +
                     " does not tell what became of it; check the node and the API server"};
  return end;
}

std::string FindDifference(const json& actual, const json& wanted) {
  if (IsEmpty(wanted)) return IsEmpty(actual) ? "" : "(set)";
  if (wanted.is_object()) {
    for (const auto& [key, value] : wanted.items()) {
      const bool needs_value =
          std::find(std::begin(kTrueUnlessSet), std::end(kTrueUnlessSet), key) != std::end(kTrueUnlessSet);
      if (needs_value && value == false && At(actual, key.c_str()).is_null()) return key + " (is absent)";
      if (const std::string below = FindDifference(At(actual, key.c_str()), value); !below.empty())
        return key + (below[0] == '(' ? " " : ".") + below;
    }
    return "";
  }
  if (wanted.is_array()) {
    if (!actual.is_array() || actual.size() != wanted.size()) return "(another number of entries)";
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (const std::string below = FindDifference(actual[i], wanted[i]); !below.empty())
        return std::to_string(i) + (below[0] == '(' ? " " : ".") + below;
    }
    return "";
  }
  if (actual == wanted) return "";
  if (actual.is_string() && wanted.is_string()) {
    const std::optional<double> one = ReadQuantity(actual), other = ReadQuantity(wanted);
    if (one && other && std::fabs(*one - *other) < 1e-6) return "";
  }
  return "(is " + Shown(actual.dump(-1, ' ', true, json::error_handler_t::replace)) + ")";
}

}  // namespace caisson::runtime::kubernetes
