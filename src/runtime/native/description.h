// Describes the native runtime and its abilities, for this process and for a launcher: both run the same core.
#pragma once

#include "policy/runtimes.h"

namespace caisson::runtime::native {

policy::RuntimeDescription DescribeNative();

}  // namespace caisson::runtime::native
