// The documents of OCI and Docker images: index, manifest and configuration. All are hostile text, which these
// functions turn into the few facts that an import needs. They look at nothing but the text.
//
// Unknown members are ignored, because the formats grow; what is used is checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace caisson::image {

inline constexpr size_t kMaxDocumentBytes = size_t{8} << 20;
inline constexpr size_t kMaxLayers = 512;

// A file of an image layout.
struct Blob {
  std::string path;    // relative to the layout, without ".."
  std::string sha256;  // hex; empty: the document names none
  int64_t size = -1;   // -1: the document names none
};

struct Manifest {
  Blob config;
  std::vector<Blob> layers;  // the lowest first
};

// How the image wants its programs to be started.
struct Config {
  std::vector<std::pair<std::string, std::string>> env;
  std::string working_directory;
  std::vector<std::string> entrypoint, command;
  std::string user;

  bool operator==(const Config& other) const = default;
};

struct ConfigDocument {
  Config config;
  std::vector<std::string> unpacked_layers;  // SHA-256 of each layer's tar file, in hex
};

// "amd64" or "arm64", as these documents spell the machine this program was built for.
const char* ThisArchitecture();

// An index.json or a nested index. Returns the blobs of manifests and indexes for Linux on this machine; the others are
// left out. `nested`: which of them are indexes.
struct Choice {
  Blob blob;
  bool nested = false;
};
Result<std::vector<Choice>> ReadIndex(std::string_view text);
Result<Manifest> ReadManifest(std::string_view text);
// The manifest.json of `docker save`, which must list one image.
Result<Manifest> ReadDockerManifest(std::string_view text);
// kInvalid also for an image of another system or machine.
Result<ConfigDocument> ReadConfig(std::string_view text);

// The configuration in canonical form: equal for equal ones, and the first part of what an image's digest covers.
std::string Canonical(const Config& config);
// Reads that form.
Result<Config> ReadCanonical(std::string_view text);

}  // namespace caisson::image
