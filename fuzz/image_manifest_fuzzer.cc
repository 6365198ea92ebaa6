// Any bytes may stand where an image has its index, manifest or configuration. None may crash a reader, and what is
// accepted names only files of the image and holds what import relies on.
#include <string>
#include <string_view>

#include "fault.h"
#include "image/manifest.h"
#include "target.h"

namespace {

using caisson::image::Blob;

void CheckBlob(const Blob& blob) {
  CAISSON_CHECK(!blob.path.empty() && blob.path[0] != '/' && blob.path.find('\0') == std::string::npos);
  CAISSON_CHECK(("/" + blob.path + "/").find("/../") == std::string::npos);
  CAISSON_CHECK(blob.sha256.empty() || blob.sha256.size() == 64);
  CAISSON_CHECK(blob.size >= -1);
}

void CheckManifest(const caisson::Result<caisson::image::Manifest>& manifest) {
  if (!manifest) return CheckFault(manifest.error());
  CheckBlob(manifest->config);
  CAISSON_CHECK(manifest->layers.size() <= caisson::image::kMaxLayers);
  for (const Blob& layer : manifest->layers) CheckBlob(layer);
}

}  // namespace

CAISSON_FUZZ_TARGET(image_manifest) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  CheckManifest(caisson::image::ReadManifest(text));
  CheckManifest(caisson::image::ReadDockerManifest(text));
  if (const auto index = caisson::image::ReadIndex(text)) {
    for (const auto& choice : *index) CheckBlob(choice.blob);
  }
  const auto read = caisson::image::ReadConfig(text);
  if (!read) {
    CheckFault(read.error());
    return 0;
  }
  for (const auto& [key, value] : read->config.env) {
    CAISSON_CHECK(!key.empty() && key.find('=') == std::string::npos);
    CAISSON_CHECK(key.find('\0') == std::string::npos && value.find('\0') == std::string::npos);
  }
  const auto again = caisson::image::ReadCanonical(caisson::image::Canonical(read->config));
  CAISSON_CHECK(again && *again == read->config);
  return 0;
}
