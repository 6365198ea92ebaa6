// Writes the first file system of a virtual machine: an archive in the "newc" format of cpio, which the kernel unpacks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace caisson::runtime::microvm {

class InitramfsWriter {
 public:
  // Names are relative; a directory comes before what it holds.
  void AddDirectory(std::string_view name);
  void AddFile(std::string_view name, mode_t permissions, std::string_view bytes);
  void AddCharacterDevice(std::string_view name, mode_t permissions, uint32_t major, uint32_t minor);
  // The whole archive; nothing can be added after that.
  std::string Finish();

 private:
  void Add(std::string_view name, mode_t mode, std::string_view bytes, uint32_t major, uint32_t minor);

  std::string archive_;
  uint32_t next_inode_ = 1;
};

}  // namespace caisson::runtime::microvm
