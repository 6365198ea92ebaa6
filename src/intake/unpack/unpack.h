// Reads an archive with libarchive: the only place where its code meets a stranger's bytes. Linked into the helper
// (bin/caisson_intake.cc) and a fuzz target, never into a program that has something to lose.
#pragma once

#include <functional>
#include <string_view>

#include "base/result.h"
#include "intake/archive_format.h"
#include "intake/tree_rules.h"
#include "policy/plan.h"

namespace caisson::intake::unpack {

// Hands every entry to `deliver`, in the archive's order, each whole and within the rules of TreeRules; directories
// that are only implied are not delivered. Ends at the first fault. Errors are ErrorKind::kInvalid and name the entry.
//
// Taken are tar (also with gzip, xz or zstd around it, once) and zip (its central directory: what other readers go by).
// Hard links, devices, pipes, sockets and encrypted entries are refused. Of a mode only "executable" is kept.
Status Unpack(std::string_view archive, ArchiveFormat format, const Limits& limits,
              const std::function<Status(const policy::PlannedFile&)>& deliver);

// Lets libc load now what names and times in archives need, while files can still be opened. An error when names that
// are not ASCII could not be read.
Status PrepareLibrary();

}  // namespace caisson::intake::unpack
