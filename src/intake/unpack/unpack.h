// Reads an archive with libarchive: the only place where libarchive parses untrusted bytes. Linked into the helper
// (bin/caisson_intake.cc) and a fuzz target, never into a program with rights.
#pragma once

#include <functional>
#include <string_view>

#include "base/result.h"
#include "intake/archive_format.h"
#include "intake/tree_rules.h"
#include "policy/plan.h"

namespace caisson::intake::unpack {

// Passes every entry to `deliver`, in the archive's order, complete and within the rules of TreeRules; implied
// directories are not delivered. Stops at the first fault. Errors are ErrorKind::kInvalid and name the entry.
//
// Accepts tar (also within gzip, xz or zstd, once) and zip (by its central directory, as other readers do).
// Hard links, devices, pipes, sockets and encrypted entries are refused. Of a mode only "executable" is kept.
Status Unpack(std::string_view archive, ArchiveFormat format, const Limits& limits,
              const std::function<Status(const policy::PlannedFile&)>& deliver);

// Makes libc load its data for names and times now, while files can still be opened. An error when names that
// are not ASCII could not be read.
Status PrepareLibrary();

}  // namespace caisson::intake::unpack
