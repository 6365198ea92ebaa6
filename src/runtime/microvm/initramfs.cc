#include "runtime/microvm/initramfs.h"

#include <sys/stat.h>

#include <initializer_list>
#include <utility>

namespace caisson::runtime::microvm {

namespace {

void AppendHex(std::string& text, uint32_t value) {
  for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[value >> shift & 15U];
}

}  // namespace

void InitramfsWriter::Add(std::string_view name, mode_t mode, std::string_view bytes, uint32_t major, uint32_t minor) {
  const auto pad = [&] { archive_.append((4 - archive_.size() % 4) % 4, '\0'); };
  archive_ += "070701";
  const auto size = static_cast<uint32_t>(bytes.size()), name_size = static_cast<uint32_t>(name.size() + 1);
  // inode, mode, uid, gid, links, time, size, device of the file, device it stands for, name's size, checksum
  for (const uint32_t field :
       {next_inode_++, static_cast<uint32_t>(mode), 0U, 0U, 1U, 0U, size, 0U, 0U, major, minor, name_size, 0U})
    AppendHex(archive_, field);
  archive_.append(name);
  archive_ += '\0';
  pad();
  archive_.append(bytes);
  pad();
}

void InitramfsWriter::AddDirectory(std::string_view name) { Add(name, S_IFDIR | 0755, "", 0, 0); }

void InitramfsWriter::AddFile(std::string_view name, mode_t permissions, std::string_view bytes) {
  Add(name, S_IFREG | permissions, bytes, 0, 0);
}

void InitramfsWriter::AddCharacterDevice(std::string_view name, mode_t permissions, uint32_t major, uint32_t minor) {
  Add(name, S_IFCHR | permissions, "", major, minor);
}

std::string InitramfsWriter::Finish() {
  Add("TRAILER!!!", 0, "", 0, 0);
  return std::move(archive_);
}

}  // namespace caisson::runtime::microvm
