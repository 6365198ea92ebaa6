// The kernel of virtual machines: Debian's for clouds, or any other that has the same drivers. Places, in this order:
//
//   $CAISSON_MICROVM                                  a directory with vmlinux or vmlinuz, and modules
//   $XDG_CACHE_HOME/caisson/microvm                   the same, as ./dev microvm-kernel makes it; ~/.cache without the
//                                                     variable
//   /usr/lib/caisson/microvm                          the same
//   /boot/vmlinuz-VERSION and /lib/modules/VERSION    an installed one; cloud kernels first, newest first
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace caisson::runtime::microvm {

struct Kernel {
  std::string image;                 // a path
  std::vector<std::string> modules;  // paths, in the order in which they are loaded; what is missing is built in
};

// SECURITY: takes only files that no other user can change.
Result<Kernel> FindKernel();

}  // namespace caisson::runtime::microvm
