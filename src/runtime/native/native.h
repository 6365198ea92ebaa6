// The native runtime: the sandbox in src/sandbox, in this process.
#pragma once

#include <memory>

#include "runtime/runtime.h"

namespace caisson::runtime::native {

std::unique_ptr<Runtime> MakeNativeRuntime();

}  // namespace caisson::runtime::native
