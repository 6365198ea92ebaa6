// Which process a Job belongs to, so that the Jobs of killed processes are found and removed.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace caisson::runtime::kubernetes {

inline constexpr char kMachineLabel[] = "caisson.org/machine";
inline constexpr char kOwnerLabel[] = "caisson.org/owner";

// This boot of the machine and this pid namespace, within which process numbers mean something.
std::string ThisMachine();
// This process: its number and when it was started.
std::string ThisOwner();
// False only for a process of ThisMachine that is certainly gone.
bool MayBeAlive(const std::string& owner);

}  // namespace caisson::runtime::kubernetes
