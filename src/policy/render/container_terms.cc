#include "policy/render/container_terms.h"

#include <algorithm>
#include <cctype>

namespace caisson::policy::render {

using nlohmann::ordered_json;

namespace {

// The entries that Linux 6.x has directly below /proc besides processes.
constexpr const char* kKernelWide[] = {"acpi",
                                       "asound",
                                       "bootconfig",
                                       "buddyinfo",
                                       "bus",
                                       "cgroups",
                                       "cmdline",
                                       "config.gz",
                                       "consoles",
                                       "cpuinfo",
                                       "crypto",
                                       "devices",
                                       "diskstats",
                                       "dma",
                                       "driver",
                                       "dynamic_debug",
                                       "execdomains",
                                       "fb",
                                       "filesystems",
                                       "fs",
                                       "interrupts",
                                       "iomem",
                                       "ioports",
                                       "irq",
                                       "kallsyms",
                                       "kcore",
                                       "key-users",
                                       "keys",
                                       "kmsg",
                                       "kpagecgroup",
                                       "kpagecount",
                                       "kpageflags",
                                       "latency_stats",
                                       "loadavg",
                                       "locks",
                                       "mdstat",
                                       "meminfo",
                                       "misc",
                                       "modules",
                                       "mtrr",
                                       "pagetypeinfo",
                                       "partitions",
                                       "pressure",
                                       "sched_debug",
                                       "schedstat",
                                       "scsi",
                                       "slabinfo",
                                       "softirqs",
                                       "stat",
                                       "swaps",
                                       "sys",
                                       "sysrq-trigger",
                                       "sysvipc",
                                       "timer_list",
                                       "timer_stats",
                                       "tty",
                                       "uptime",
                                       "version",
                                       "version_signature",
                                       "vmallocinfo",
                                       "vmstat",
                                       "zoneinfo"};

constexpr size_t kLine = 120;
constexpr size_t kRule = 400;  // a rule of a filter stands on one line, because it is read as one unit

class JsonPrinter {
 public:
  std::string Print(const ordered_json& document) {
    Value(document, 0, true);
    return std::move(text_) + "\n";
  }

 private:
  // `open`: on several lines even where it would fit on one.
  void Value(const ordered_json& value, size_t indent, bool open) {
    const std::string flat = value.dump();
    if (value.empty() || !value.is_structured() ||
        (!open && Column() + flat.size() < (value.is_object() && value.contains("args") ? kRule : kLine))) {
      text_ += flat;
    } else if (value.is_array() && !value.front().is_structured()) {
      Words(value, indent + 2);
    } else {
      Members(value, indent + 2);
    }
  }

  void Members(const ordered_json& value, size_t indent) {
    text_ += value.is_array() ? "[" : "{";
    bool first = true;
    for (const auto& [key, member] : value.items()) {
      text_ += first ? "\n" : ",\n";
      first = false;
      text_.append(indent, ' ');
      if (value.is_object()) text_ += ordered_json(key).dump() + ": ";
      Value(member, indent, false);
    }
    NewLine(indent - 2);
    text_ += value.is_array() ? "]" : "}";
  }

  // Prints a long list of words, with as many on a line as fit.
  void Words(const ordered_json& value, size_t indent) {
    text_ += "[";
    bool first = true;
    for (const ordered_json& word : value) {
      const std::string flat = word.dump();
      if (!first) text_ += ",";
      if (first || Column() + flat.size() + 2 > kLine)
        NewLine(indent);
      else
        text_ += " ";
      first = false;
      text_ += flat;
    }
    NewLine(indent - 2);
    text_ += "]";
  }

  void NewLine(size_t indent) { text_.append("\n").append(indent, ' '); }
  size_t Column() const { return text_.size() - (text_.rfind('\n') + 1); }  // npos + 1 is the start

  std::string text_;
};

}  // namespace

std::vector<WritableArea> WritableAreas(const Profile& profile) {
  // Workloads leave results in /scratch, so it gets half.
  const auto rest = static_cast<int64_t>(profile.writable_paths.size()) - 1;
  std::vector<WritableArea> areas;
  for (const std::string& path : profile.writable_paths) {
    const bool scratch = path == "/scratch";
    const int64_t parts = rest == 0 ? 1 : scratch ? 2 : 2 * rest;
    areas.push_back(
        {path, profile.limits.scratch_bytes / parts, profile.limits.scratch_inodes / parts, scratch ? "0755" : "1777"});
  }
  return areas;
}

std::array<ProcessLimit, 9> ProcessLimits(const Profile& profile) {
  const int64_t stack = profile.limits.stack_bytes;
  const int64_t file = profile.limits.scratch_bytes;
  return {{{"core", 1, 1},  // not 0: with 0 a core_pattern that pipes to a program still runs it
           {"fsize", file, file},
           {"memlock", int64_t{1} << 20, int64_t{1} << 20},
           {"msgqueue", 819200, 819200},
           {"nice", 0, 0},
           {"nofile", 1024, 4096},
           {"rtprio", 0, 0},
           {"sigpending", 4096, 4096},
           {"stack", stack, stack}}};
}

std::vector<std::string> MaskedPaths(const Profile& profile) {
  std::vector<std::string> paths;
  const auto add = [&](const std::string& name) { paths.push_back("/proc/" + name); };
  for (const std::string& name : profile.proc.masked_files) add(name);
  for (const std::string& name : profile.proc.masked_directories) add(name);
  if (profile.proc.pids_only) {
    for (const char* name : kKernelWide) add(name);
  }
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

std::string PlainName(const Profile& profile, char other) {
  std::string name = profile.name;
  for (char& letter : name) {
    const auto byte = static_cast<unsigned char>(letter);
    letter = std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : other;
  }
  while (!name.empty() && name.back() == other) name.pop_back();
  return name;
}

std::string PrintJson(const ordered_json& document) { return JsonPrinter().Print(document); }

}  // namespace caisson::policy::render
