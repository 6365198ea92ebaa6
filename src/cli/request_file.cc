#include "cli/request_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "linux/files.h"
#include "verify/request.h"

namespace caisson::cli {

namespace {

bool EndsWith(const std::string& path, std::string_view ending) {
  return path.size() > ending.size() && path.compare(path.size() - ending.size(), ending.size(), ending) == 0;
}

}  // namespace

bool LooksLikeRequest(const std::string& path) { return EndsWith(path, ".json"); }

bool LooksLikeArchive(const std::string& path) {
  constexpr std::string_view kEndings[] = {".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.zst", ".tzst", ".zip"};
  struct stat info {};
  return std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](std::string_view ending) { return EndsWith(path, ending); }) &&
         ::stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode);
}

Result<std::string> ReadRequestFile(const std::string& path) {
  return linux_sys::ReadDocument(path, verify::kMaxRequestBytes);
}

std::string PathBesideRequest(const std::string& request_path, const std::string& path) {
  const size_t slash = request_path.rfind('/');
  if (path.compare(0, 1, "/") == 0 || slash == std::string::npos) return path;
  return request_path.substr(0, slash + 1) + path;
}

}  // namespace caisson::cli
