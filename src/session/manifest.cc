#include "session/manifest.h"

#include <fcntl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "session/record.h"
#include "session/stamp.h"
#include "session/tree.h"

namespace caisson::session {

namespace {

constexpr char kHeader[] = "caisson-manifest-1";
constexpr size_t kMaxManifestBytes = size_t{1} << 30;

struct Recorder {
  Budget budget;
  Manifest manifest;
  int64_t newest_ns = 0;

  Status Record(int directory_fd, const std::string& directory, int depth) {
    CAISSON_TRY_VOID(budget.Depth(depth, directory));
    CAISSON_TRY(const std::vector<std::string> names, ReadNames(directory_fd, directory, budget));
    for (const std::string& name : names) {
      CAISSON_TRY(const std::optional<EntryStat> stat, StatAt(directory_fd, name));
      if (!stat) return Error::Conflict("the copy changed while its manifest was made");
      const std::string path = Joined(directory, name);
      newest_ns = std::max(newest_ns, stat->ctime_ns);
      manifest.entries[path] = {stat->type, stat->mode, stat->size, stat->inode, stat->ctime_ns};
      if (stat->type != EntryType::kDirectory) continue;
      CAISSON_TRY(const UniqueFd below, OpenBelow(directory_fd, name, O_RDONLY | O_DIRECTORY));
      CAISSON_TRY_VOID(Record(below.get(), path, depth + 1));
    }
    return {};
  }
};

// A change within one tick of the file system's clock would have the ctime of the manifest.
Status AwaitNextTick(int directory_fd, int64_t newest_ns) {
  for (int tries = 0; tries < 5000; ++tries) {
    CAISSON_TRY(const Stamp stamp, TakeStamp(directory_fd));
    if (stamp.ctime_ns > newest_ns) return {};
    const struct timespec millisecond = {0, 1'000'000};
    ::nanosleep(&millisecond, nullptr);
  }
  return Error::System(ETIME, "the clock of the copy's file system does not move beyond the copy's times");
}

}  // namespace

Result<Manifest> RecordManifest(int copy_fd, const DiffLimits& limits) {
  Recorder recorder{Budget(limits), {}, 0};
  CAISSON_TRY_VOID(recorder.Record(copy_fd, "", 0));
  CAISSON_TRY_VOID(AwaitNextTick(copy_fd, recorder.newest_ns));
  return std::move(recorder.manifest);
}

std::string ManifestToText(const Manifest& manifest) {
  std::vector<const std::pair<const std::string, ManifestEntry>*> sorted;
  for (const auto& item : manifest.entries) sorted.push_back(&item);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
  std::string text = std::string(kHeader) + "\n";
  for (const auto* item : sorted) {
    const ManifestEntry& entry = item->second;
    text += std::string(kEntryTypeNames[static_cast<size_t>(entry.type)]) + " " + std::to_string(entry.mode) + " " +
            std::to_string(entry.size) + " " + std::to_string(entry.inode) + " " + std::to_string(entry.ctime_ns) +
            " " + EncodePath(item->first) + "\n";
  }
  return text + "end " + std::to_string(sorted.size()) + "\n";
}

Result<Manifest> ParseManifest(std::string_view text, const DiffLimits& limits) {
  const auto fault = [](const char* what) { return Error::Invalid(std::string("the session's manifest: ") + what); };
  RecordReader reader(text);
  CAISSON_TRY(const auto header, reader.Next());
  if (!header || header->size() != 1 || (*header)[0] != kHeader) return fault("has another version or is damaged");
  Manifest manifest;
  for (;;) {
    CAISSON_TRY(const auto line, reader.Next());
    if (!line) return fault("is cut off");
    const std::vector<std::string_view>& fields = *line;
    if (fields[0] == "end") {
      if (fields.size() != 2 || ParseNumber(fields[1]) != manifest.entries.size()) return fault("lacks entries");
      CAISSON_TRY(const auto more, reader.Next());
      if (more) return fault("goes on after its end");
      return manifest;
    }
    if (fields.size() != 6) return fault("has a line with a wrong number of fields");
    const auto name = std::find(kEntryTypeNames.begin() + 1, kEntryTypeNames.end(), fields[0]);
    const std::optional<uint64_t> mode = ParseNumber(fields[1]), size = ParseNumber(fields[2]),
                                  inode = ParseNumber(fields[3]), ctime = ParseNumber(fields[4]);
    std::optional<std::string> path = DecodePath(fields[5]);
    if (name == kEntryTypeNames.end() || !mode || *mode > 07777 || !size || *size > INT64_MAX || !inode || !ctime ||
        *ctime > INT64_MAX || !path || path->size() > limits.path_bytes) {
      return fault("has a damaged line");
    }
    if (manifest.entries.size() >= static_cast<size_t>(limits.entries)) return fault("has too many entries");
    const ManifestEntry entry = {static_cast<EntryType>(name - kEntryTypeNames.begin()), static_cast<mode_t>(*mode),
                                 static_cast<int64_t>(*size), *inode, static_cast<int64_t>(*ctime)};
    if (!manifest.entries.emplace(std::move(*path), entry).second) return fault("has an entry twice");
  }
}

Status WriteManifest(int copy_fd, int directory_fd, const std::string& name, const DiffLimits& limits) {
  CAISSON_TRY(const Manifest manifest, RecordManifest(copy_fd, limits));
  return ReplaceFile(directory_fd, name, ManifestToText(manifest));
}

Result<Manifest> ReadManifest(int directory_fd, const std::string& name, const DiffLimits& limits) {
  CAISSON_TRY(const std::string text, ReadWholeFile(directory_fd, name, kMaxManifestBytes));
  return ParseManifest(text, limits);
}

}  // namespace caisson::session
