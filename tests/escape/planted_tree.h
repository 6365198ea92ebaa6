// For rows about mount targets: a source tree, a directory of the host that must stay as it is, and what is mounted.
// Runs: host.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "escape/host.h"

namespace caisson::escape {

struct PlantedTree {
  explicit PlantedTree(Host& host)
      : source(host.MakeDirectory()), outside(host.MakeDirectory()), directory(host.MakeDirectory()) {
    // Writable, so that a program that creates a file through a link succeeds; otherwise its absence proves nothing.
    for (const std::string& path : {source, outside, directory}) ::chmod(path.c_str(), 0777);
    file = directory + "/mark";
    std::ofstream(file) << "MARK\n";
    ::chmod(file.c_str(), 0666);
  }

  void Link(const std::string& name, const std::string& target) const {
    std::filesystem::create_symlink(target, source + "/" + name);
  }
  void Directory(const std::string& name) const {
    std::filesystem::create_directory(source + "/" + name);
    ::chmod((source + "/" + name).c_str(), 0777);
  }

  // Every name in the source and outside.
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const std::string& top : {source, outside, directory}) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(top)) names.insert(entry.path().string());
    }
    return names;
  }

  std::string source, outside, directory, file;
};

// How something can be mounted: -v SOURCE:TARGET:ACCESS.
struct MountKind {
  bool directory;
  std::string access;
};
inline const std::vector<MountKind> kMountKinds = {
    {true, "ro"}, {true, "cow"}, {true, "rw"}, {false, "ro"}, {false, "rw"}};

// Names that are in one and not in the other, for a message.
inline std::string Difference(const std::set<std::string>& before, const std::set<std::string>& after) {
  std::string text;
  for (const std::string& name : after) {
    if (before.count(name) == 0) text += " +" + name;
  }
  for (const std::string& name : before) {
    if (after.count(name) == 0) text += " -" + name;
  }
  return text;
}

}  // namespace caisson::escape
