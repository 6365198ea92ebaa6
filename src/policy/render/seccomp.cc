// Our filters are ordered: the first matching rule of a call decides, and "everything else" may come last. The OCI
// format has no order. The effect of two overlapping rules in libseccomp depends on their form, and a rule without
// arguments silently replaces all other rules of its call. So this file turns the list of each call into rules that
// never overlap, which mean the same in any order. A rule that notifies the native supervisor becomes the answer that
// the supervisor would give.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "policy/filter_source.h"
#include "policy/render.h"
#include "policy/render/container_terms.h"

namespace caisson::policy::render {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr size_t kArguments = 6;
constexpr unsigned kBits = 64;

// The calls whose argument bits under `mask` equal those of `value`.
struct Cube {
  std::array<uint64_t, kArguments> mask{}, value{};

  bool Meets(const Cube& other) const {
    for (size_t i = 0; i < kArguments; ++i) {
      if (((value[i] ^ other.value[i]) & mask[i] & other.mask[i]) != 0) return false;
    }
    return true;
  }
  // Both cubes must overlap.
  bool Contains(const Cube& other) const {
    for (size_t i = 0; i < kArguments; ++i) {
      if ((mask[i] & ~other.mask[i]) != 0) return false;
    }
    return true;
  }
  Cube With(size_t argument, unsigned bit, bool set) const {
    Cube half = *this;
    half.mask[argument] |= uint64_t{1} << bit;
    if (set) half.value[argument] |= uint64_t{1} << bit;
    return half;
  }
};

struct Answer {
  std::string action;
  int error = 0;
  bool operator==(const Answer&) const = default;
};

struct Rule {
  Cube where;
  Answer answer;
};

Answer AnswerOf(const json& rule) {
  const std::string action = rule["action"];
  if (action == "SCMP_ACT_ALLOW") return {"SCMP_ACT_ALLOW"};
  if (action == "SCMP_ACT_ERRNO") return {"SCMP_ACT_ERRNO", rule["errnoRet"]};
  if (action == "SCMP_ACT_NOTIFY") {
    const json& then = rule["x-caisson"];
    if (then["do"] == "observe") return {"SCMP_ACT_ALLOW"};
    if (then["do"] == "deny") return {"SCMP_ACT_ERRNO", then["errno"]};
  }
  // SECURITY: an action that is not understood is refused in the strictest way.
  return {"SCMP_ACT_KILL_PROCESS"};
}

Cube CubeOf(const json& rule) {
  Cube cube;
  if (!rule.contains("args")) return cube;
  for (const json& test : rule["args"]) {
    const size_t index = test["index"];
    cube.mask[index] = test["value"];  // every test is a masked comparison: the compiler of the filters knows no other
    cube.value[index] = test["valueTwo"];
  }
  return cube;
}

// Halves `cube` until one answer holds in the whole of each part. Appends the parts whose answer differs from that of
// the last rule, which matches everything.
class Divider {
 public:
  explicit Divider(const Answer& otherwise) : otherwise_(otherwise) {}

  std::vector<Rule> Divide(std::vector<Rule> rules) {
    rules.push_back({Cube(), otherwise_});
    Divide(Cube(), rules);
    return std::move(parts_);
  }

 private:
  void Divide(const Cube& cube, const std::vector<Rule>& rules) {
    std::vector<Rule> live;
    for (const Rule& rule : rules) {
      if (!rule.where.Meets(cube)) continue;
      live.push_back(rule);
      if (rule.where.Contains(cube)) break;  // later rules are never reached
    }
    const Answer& first = live.front().answer;
    if (std::all_of(live.begin(), live.end(), [&](const Rule& rule) { return rule.answer == first; })) {
      if (!(first == otherwise_)) parts_.push_back({cube, first});
      return;
    }
    const auto [argument, bit] = ChooseBit(cube, live);
    for (const bool set : {false, true}) Divide(cube.With(argument, bit, set), live);
  }

  // Chooses a bit that most rules test, and among those one on which they agree: then one half needs no further
  // division.
  static std::pair<size_t, unsigned> ChooseBit(const Cube& cube, const std::vector<Rule>& rules) {
    std::pair<size_t, unsigned> best{};
    std::pair<int, int> best_score{};
    for (size_t argument = 0; argument < kArguments; ++argument) {
      for (unsigned bit = 0; bit < kBits; ++bit) {
        if ((cube.mask[argument] >> bit & 1) != 0) continue;
        int ones = 0, zeros = 0;
        for (const Rule& rule : rules) {
          if ((rule.where.mask[argument] >> bit & 1) == 0) continue;
          ++((rule.where.value[argument] >> bit & 1) != 0 ? ones : zeros);
        }
        const std::pair<int, int> score{ones + zeros, std::abs(ones - zeros)};
        if (score > best_score) {
          best_score = score;
          best = {argument, bit};
        }
      }
    }
    return best;
  }

  const Answer& otherwise_;
  std::vector<Rule> parts_;
};

ordered_json Write(const std::vector<std::string>& names, const Rule& rule) {
  ordered_json out = {{"names", names}, {"action", rule.answer.action}};
  // 0 is written too, for advice that is ignored: without it a runtime answers EPERM.
  if (rule.answer.action == "SCMP_ACT_ERRNO") out["errnoRet"] = rule.answer.error;
  ordered_json tests = ordered_json::array();
  for (size_t i = 0; i < kArguments; ++i) {
    if (rule.where.mask[i] == 0) continue;
    tests.push_back(
        {{"index", i}, {"value", rule.where.mask[i]}, {"valueTwo", rule.where.value[i]}, {"op", "SCMP_CMP_MASKED_EQ"}});
  }
  if (!tests.empty()) out["args"] = std::move(tests);
  return out;
}

bool IsRest(const json& rule) { return rule.contains("x-caisson") && rule["x-caisson"].value("except", false); }

// The rules of each call in the order they are tried.
std::map<std::string, std::vector<Rule>> RulesByCall(const json& document) {
  std::map<std::string, std::vector<Rule>> calls;
  for (const bool rest : {false, true}) {
    for (const json& rule : document["syscalls"]) {
      if (IsRest(rule) != rest) continue;
      for (const json& name : rule["names"]) calls[name.get<std::string>()].push_back({CubeOf(rule), AnswerOf(rule)});
    }
  }
  return calls;
}

}  // namespace

Result<ordered_json> SeccompDocument(const Profile& profile) {
  CAISSON_TRY(const json source, FilterDocument(profile.seccomp));
  const Answer otherwise{source["defaultAction"], source["defaultErrnoRet"]};
  // Calls with the same rules share entries. Entries without arguments come first, because most readers look for those.
  std::map<std::pair<bool, std::string>, std::pair<std::vector<Rule>, std::vector<std::string>>> groups;
  for (auto& [name, rules] : RulesByCall(source)) {
    std::vector<Rule> parts = Divider(otherwise).Divide(std::move(rules));
    std::string key;
    for (const Rule& part : parts) key += Write({}, part).dump();
    const bool tested = parts.size() != 1 || Write({}, parts[0]).contains("args");
    auto& group = groups[{tested, key}];
    group.first = std::move(parts);
    group.second.push_back(name);
  }
  ordered_json rules = ordered_json::array();
  for (const auto& [key, group] : groups) {
    for (const Rule& part : group.first) rules.push_back(Write(group.second, part));
  }
  return ordered_json{{"defaultAction", otherwise.action},
                      {"defaultErrnoRet", otherwise.error},
                      {"architectures", source["architectures"]},
                      // Explicit, because without the key runc switches speculation mitigations off.
                      {"flags", ordered_json::array()},
                      {"syscalls", std::move(rules)}};
}

Result<bool> CallIsAllowed(const Profile& profile, std::string_view call, const std::array<uint64_t, 6>& arguments) {
  CAISSON_TRY(const json source, FilterDocument(profile.seccomp));
  Cube asked;
  asked.mask.fill(~uint64_t{0});
  asked.value = arguments;
  auto calls = RulesByCall(source);
  for (const Rule& rule : calls[std::string(call)]) {
    if (rule.where.Meets(asked)) return rule.answer == Answer{"SCMP_ACT_ALLOW"};
  }
  return false;  // not listed: refused
}

Result<std::string> Seccomp(const Profile& profile) {
  CAISSON_TRY(const ordered_json document, SeccompDocument(profile));
  return PrintJson(document);
}

}  // namespace caisson::policy::render
