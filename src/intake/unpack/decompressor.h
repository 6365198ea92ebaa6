// Removes one layer of compression (gzip, xz, zstd) from a stream, never a second one.
//
// SECURITY: left to itself libarchive looks for a filter behind each filter, 25 deep, before anything can be refused. A
// gzip file that unpacks to itself then costs seconds and hundreds of megabytes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

struct archive;

namespace caisson::intake::unpack {

// Returns the next bytes, valid until the next call; none at the end.
using ByteSource = std::function<Result<std::string_view>()>;

struct FreeReader {
  void operator()(struct archive* reader) const;
};
using Reader = std::unique_ptr<struct archive, FreeReader>;

// libarchive's message about its last error, as a fault of the entry `name` if that is not empty.
Error Fault(struct archive* reader, const std::string& name);

class Decompressor {
 public:
  // The first bytes decide about the compression.
  static Result<std::unique_ptr<Decompressor>> Open(ByteSource source);
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  // The next bytes, valid until the next call; none at the end.
  Result<std::string_view> Next();

 private:
  explicit Decompressor(ByteSource source) : source_(std::move(source)) {}
  Result<std::string_view> NextInput();
  static long Read(struct archive* reader, void* self, const void** bytes);

  ByteSource source_;
  std::string start_;           // read ahead to see the compression
  std::string_view unread_;     // of `start_`
  std::optional<Error> fault_;  // of `source_`, which libarchive can only be told of by a number
  Reader reader_;               // absent: not compressed
  bool first_ = true;
};

}  // namespace caisson::intake::unpack
