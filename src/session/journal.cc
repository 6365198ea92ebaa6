#include "session/journal.h"

#include <algorithm>
#include <array>

#include "session/record.h"

namespace caisson::session {

namespace {

constexpr char kHeader[] = "caisson-apply-1";
constexpr std::array<std::string_view, 4> kStateNames = {"preparing", "swapping", "committed", "undone"};
constexpr std::array<std::string_view, 4> kStepNames = {"replace", "add", "remove", "mode"};

bool IsStagingName(std::string_view name) {
  const std::string_view prefix = kStagingPrefix;
  if (name.size() != prefix.size() + 32 || name.substr(0, prefix.size()) != prefix) return false;
  return name.find_first_not_of("0123456789abcdef", prefix.size()) == std::string_view::npos;
}

std::optional<int64_t> Signed(std::string_view field) {
  const std::optional<uint64_t> number = ParseNumber(field);
  if (!number || *number > INT64_MAX) return std::nullopt;
  return static_cast<int64_t>(*number);
}

std::optional<Identity> ParseIdentity(const std::vector<std::string_view>& fields, size_t first) {
  const std::optional<uint64_t> device = ParseNumber(fields[first]), inode = ParseNumber(fields[first + 1]);
  const std::optional<int64_t> birth = Signed(fields[first + 2]), size = Signed(fields[first + 3]),
                               mtime = Signed(fields[first + 4]);
  if (!device || !inode || !birth || !size || !mtime) return std::nullopt;
  return Identity{*device, *inode, *birth, *size, *mtime};
}

}  // namespace

Identity Identity::Of(const EntryStat& stat) {
  Identity identity{stat.device, stat.inode, stat.birth_ns, 0, 0};
  if (stat.type != EntryType::kDirectory) {
    identity.size = stat.size;
    identity.mtime_ns = stat.mtime_ns;
  }
  return identity;
}

std::string JournalToText(const Journal& journal) {
  const auto number = [](auto value) { return " " + std::to_string(value); };
  std::string text = std::string(kHeader) + " " + std::string(kStateNames[static_cast<size_t>(journal.state)]) +
                     number(journal.project_device) + number(journal.project_inode) + number(journal.swapped_from_ns) +
                     " " + journal.staging + "\n";
  for (const ApplyStep& step : journal.steps) {
    text += std::string(kStepNames[static_cast<size_t>(step.kind)]) + number(step.slot) + number(step.prepared.device) +
            number(step.prepared.inode) + number(step.prepared.birth_ns) + number(step.prepared.size) +
            number(step.prepared.mtime_ns) + number(step.host.device) + number(step.host.inode) +
            number(step.host.birth_ns) + number(step.host.size) + number(step.host.mtime_ns) + number(step.old_mode) +
            number(step.new_mode) + " " + EncodePath(step.path) + "\n";
  }
  return text + "end" + number(journal.steps.size()) + "\n";
}

Result<Journal> ParseJournal(std::string_view text) {
  const auto fault = [](const char* what) { return Error::Invalid(std::string("the journal of an apply: ") + what); };
  RecordReader reader(text);
  CAISSON_TRY(const auto header, reader.Next());
  if (!header || header->size() != 6 || (*header)[0] != kHeader) return fault("has another version or is damaged");
  const auto state = std::find(kStateNames.begin(), kStateNames.end(), (*header)[1]);
  const std::optional<uint64_t> device = ParseNumber((*header)[2]), inode = ParseNumber((*header)[3]);
  const std::optional<int64_t> from = Signed((*header)[4]);
  if (state == kStateNames.end() || !device || !inode || !from || !IsStagingName((*header)[5])) {
    return fault("has a damaged first line");
  }
  Journal journal;
  journal.state = static_cast<Journal::State>(state - kStateNames.begin());
  journal.project_device = *device;
  journal.project_inode = *inode;
  journal.swapped_from_ns = *from;
  journal.staging = (*header)[5];
  for (;;) {
    CAISSON_TRY(const auto line, reader.Next());
    if (!line) return fault("is cut off");
    const std::vector<std::string_view>& fields = *line;
    if (fields[0] == "end") {
      if (fields.size() != 2 || ParseNumber(fields[1]) != journal.steps.size()) return fault("lacks steps");
      CAISSON_TRY(const auto more, reader.Next());
      if (more) return fault("goes on after its end");
      return journal;
    }
    const auto kind = std::find(kStepNames.begin(), kStepNames.end(), fields[0]);
    if (kind == kStepNames.end() || fields.size() != 15) return fault("has a damaged line");
    const std::optional<uint64_t> slot = ParseNumber(fields[1]), old_mode = ParseNumber(fields[12]),
                                  new_mode = ParseNumber(fields[13]);
    const std::optional<Identity> prepared = ParseIdentity(fields, 2), host = ParseIdentity(fields, 7);
    std::optional<std::string> path = DecodePath(fields[14]);
    if (!slot || !prepared || !host || !old_mode || *old_mode > 07777 || !new_mode || *new_mode > 07777 || !path) {
      return fault("has a damaged line");
    }
    ApplyStep step;
    step.kind = static_cast<ApplyStep::Kind>(kind - kStepNames.begin());
    step.path = std::move(*path);
    step.slot = *slot;
    step.prepared = *prepared;
    step.host = *host;
    step.old_mode = static_cast<mode_t>(*old_mode);
    step.new_mode = static_cast<mode_t>(*new_mode);
    journal.steps.push_back(std::move(step));
  }
}

}  // namespace caisson::session
