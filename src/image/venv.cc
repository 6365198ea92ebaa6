#include "image/venv.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "base/utf8.h"
#include "policy/syntax.h"

namespace caisson::image {
namespace {

constexpr int kMaxLinks = 40;

Result<std::string> Canonical(const std::string& path) {
  const std::unique_ptr<char, decltype(&::free)> real(::realpath(path.c_str(), nullptr), ::free);
  if (real == nullptr) return Error::Invalid(EscapeForTerminal(path) + ": " + std::strerror(errno));
  return std::string(real.get());
}

std::string ParentOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

// The directory above the `bin` that a program is in: the installation of an interpreter.
std::string PrefixOf(const std::string& program) { return ParentOf(ParentOf(program)); }

bool Exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

// Every name that the interpreter has on the way from bin/python to the program itself. An environment names its
// interpreter by a link, and that name must lead to it inside too.
Result<std::vector<std::string>> NamesOf(std::string path) {
  std::vector<std::string> names;
  for (int i = 0; i < kMaxLinks; ++i) {
    names.push_back(path);
    char target[PATH_MAX];
    const ssize_t size = ::readlink(path.c_str(), target, sizeof(target) - 1);
    if (size < 0) return names;
    target[size] = '\0';
    path = target[0] == '/' ? target : ParentOf(path) + "/" + target;
  }
  return Error::Invalid(EscapeForTerminal(names.front()) + ": too many links");
}

}  // namespace

Result<policy::PlannedImage> OpenVirtualEnvironment(const std::string& path) {
  CAISSON_TRY(const std::string root, Canonical(path));
  const std::string python = root + "/bin/python";
  if (!Exists(root + "/pyvenv.cfg") && !Exists(root + "/conda-meta"))
    return Error::Invalid(EscapeForTerminal(path) +
                          ": has neither pyvenv.cfg nor conda-meta; not a virtual environment");
  if (!Exists(python))
    return Error::Invalid(EscapeForTerminal(path) + ": bin/python is missing, or its interpreter is");
  policy::PlannedImage image;
  image.name = "venv:" + root;
  image.host_paths.push_back(root);
  CAISSON_TRY(const std::vector<std::string> names, NamesOf(python));
  CAISSON_TRY(const std::string program, Canonical(python));
  std::vector<std::string> prefixes = {PrefixOf(program)};
  for (const std::string& name : names) prefixes.push_back(PrefixOf(name));
  for (const std::string& prefix : prefixes) {
    // Spelled with "..", it is one of the others.
    if (prefix.empty() || policy::IsAtOrBelow(prefix, "/usr") || (prefix + "/").find("/../") != prefix.npos) continue;
    const bool shown = std::any_of(image.host_paths.begin(), image.host_paths.end(),
                                   [&](const std::string& other) { return policy::IsAtOrBelow(prefix, other); });
    if (!shown) image.host_paths.push_back(prefix);
  }
  image.environment = {{"PATH", root + "/bin:/usr/local/bin:/usr/bin:/bin"}, {"VIRTUAL_ENV", root}};
  return image;
}

}  // namespace caisson::image
