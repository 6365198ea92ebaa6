// The version people see. Kept equal to CMakeLists.txt by a test.
#pragma once

namespace caisson {
inline constexpr char kVersion[] = "0.1.0";
}
