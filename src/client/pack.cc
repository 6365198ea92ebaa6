#include "client/pack.h"

#include <openssl/evp.h>

#include "base/units.h"
#include "base/utf8.h"
#include "base/words.h"
#include "policy/path_policy.h"
#include "verify/request.h"
#include "verify/snapshot.h"

namespace caisson::client {

namespace {

std::string EncodeBase64(const std::string& bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size =
      ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                        reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

}  // namespace

Result<nlohmann::json> PackSource(const std::string& path) {
  CAISSON_TRY(const policy::JudgedPath judged, policy::OpenJudged(path));
  CAISSON_TRY(const verify::Snapshot snapshot, verify::TakeSnapshot(judged, {}));
  if (!snapshot.complete) {
    const verify::SnapshotLimits limits;
    return Error::Invalid(path + ": has more than " + std::to_string(limits.files) + " files or " +
                          FormatSize(static_cast<int64_t>(limits.bytes)) +
                          ", too much for a request; send an archive (POST /v1/archives) and name it in the request");
  }
  nlohmann::json files = nlohmann::json::object();
  for (const policy::PlannedFile& file : snapshot.files) {
    if (file.kind == policy::FileKind::kDirectory) continue;
    if (file.kind != policy::FileKind::kRegular)
      return Error::Invalid(path + ": " + Quoted(file.path) +
                            " is a symbolic link, which a request cannot hold; put the file in its place");
    if (IsValidUtf8(file.bytes) && file.bytes.find('\0') == std::string::npos)
      files[file.path] = file.bytes;
    else
      files[file.path] = {{"base64", EncodeBase64(file.bytes)}};
  }
  if (files.empty()) return Error::Invalid(path + ": has no files");
  return nlohmann::json{{"files", std::move(files)}};
}

}  // namespace caisson::client
