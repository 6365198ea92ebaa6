#include "client/pack.h"

#include <openssl/evp.h>

#include "base/units.h"
#include "base/utf8.h"
#include "base/words.h"
#include "client/tar_writer.h"
#include "policy/path_policy.h"
#include "verify/digest.h"
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

// Judged by its spelling, as the reader of an archive does.
bool LeadsOut(const std::string& target) {
  return target.empty() || target.front() == '/' || ("/" + target + "/").find("/../") != std::string::npos;
}

Result<PackedSource> PackFile(const policy::PlannedFile& file) {
  PackedSource packed;
  if (IsValidUtf8(file.bytes) && file.bytes.find('\0') == std::string::npos)
    packed.source["files"][file.path] = file.bytes;
  else
    packed.source["files"][file.path] = {{"base64", EncodeBase64(file.bytes)}};
  return packed;
}

}  // namespace

Result<PackedSource> PackSource(const std::string& path) {
  CAISSON_TRY(const policy::JudgedPath judged, policy::OpenJudged(path));
  CAISSON_TRY(const verify::Snapshot snapshot, verify::TakeSnapshot(judged, {}));
  if (!snapshot.complete) {
    const verify::SnapshotLimits limits;
    return Error::Unsupported(path + ": has more than " + std::to_string(limits.files) + " files or " +
                              FormatSize(static_cast<int64_t>(limits.bytes)) + ", too much to be sent");
  }
  TarWriter tar;
  for (const policy::PlannedFile& file : snapshot.files) {
    if (!IsValidUtf8(file.path)) return Error::Unsupported(path + ": " + Quoted(file.path) + " is not UTF-8");
    if (file.kind == policy::FileKind::kSymlink && LeadsOut(file.bytes))
      return Error::Unsupported(path + ": " + Quoted(file.path) +
                                " is a symbolic link that leads out of the directory, which cannot be sent; put the "
                                "file in its place");
    if (!judged.is_directory) return PackFile(file);
    tar.Add(file);
  }
  PackedSource packed;
  packed.archive = std::move(tar).Finish();
  packed.source = {{"archive", "sha256:" + verify::Sha256Hex(packed.archive)}};
  return packed;
}

}  // namespace caisson::client
