// Keeps the names in archives as the bytes that they are. libarchive composes the characters of names that an archive
// says are UTF-8 (NFD becomes NFC), so that a program would not find its own files and the source's digest would be of
// another tree. It does not change names of unknown encoding; so the marks that say UTF-8 are removed before it reads.
// TreeRules later checks that names are UTF-8.
//
// Malformed input is passed on unchanged: libarchive reports the fault.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace caisson::intake::unpack {

// Reads a tar file in pieces and makes every extended header (pax) say hdrcharset=BINARY.
class RawNameTar {
 public:
  // Returns the next bytes of the tar file; none at its end. They must stay valid until the next call.
  using Source = std::function<Result<std::string_view>()>;
  explicit RawNameTar(Source source) : source_(std::move(source)) {}

  // The next bytes, valid until the next call; none at the end.
  Result<std::string_view> Next();

 private:
  Status Fill(size_t bytes);  // `input_` has as many, or all that is left
  Result<std::string_view> PassOn(size_t bytes);
  Result<std::string_view> NextHeader();
  Result<std::string_view> ExtendedHeader(size_t bytes);

  Source source_;
  bool ended_ = false;
  bool not_understood_ = false;  // from here on everything is handed on
  std::string input_, output_;
  uint64_t pass_ = 0;    // bytes that are no header
  int64_t size_ = -1;    // of the next file, where an extended header says it
  bool sparse_ = false;  // a map of holes follows
};

// Removes the mark "this name is UTF-8" from all entries of a zip file.
void ClearUtf8Marks(std::string& zip);

}  // namespace caisson::intake::unpack
