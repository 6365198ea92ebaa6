// Decides which refused attempts are notices. Ordinary libraries try things that they can do without: OpenBLAS asks for
// memory near the processor, fontconfig offers to keep a cache. The profile lists these attempts, each with its reason
// (Spec::probes); every other refused attempt is a violation.
//
// SECURITY: the decision follows the refusal and changes nothing about it. So that a notice cannot cover another
// attempt, only an attempt that one entry describes completely becomes a notice:
//   - a system call that the filter denied by a rule whose reason the entry names: number and registers decide, and no
//     memory that a thread could change meanwhile;
//   - opening a file for writing, or creating a file or directory, at a resolved path at or below the entry's. A call
//     that names two paths is never a notice, nor is a call whose arguments could not all be read.
// Network access, limits and calls that end the sandbox are violations under every profile.
#pragma once

#include <span>
#include <vector>

#include "base/violation.h"
#include "sandbox/spec.h"

namespace caisson::sandbox {

// The entry that makes this a notice; nullptr: it is a violation.
const Probe* FindProbe(std::span<const Probe> probes, const Violation& violation);

// Each entry has one notice with a count, so the profile bounds the number of notices and the workload cannot raise it.
void AddNotice(std::vector<Notice>& notices, const Probe& probe, Violation violation);

}  // namespace caisson::sandbox
