// Turns a policy into a classic BPF program for seccomp. Build-time only.
#pragma once

#include <linux/filter.h>

#include <vector>

#include "seccomp_policy.h"

namespace caisson::tools {

std::vector<sock_filter> GenerateFilter(const Policy& policy);

}  // namespace caisson::tools
