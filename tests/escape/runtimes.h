// What the suite expects in runtimes other than native. Rows describe attacks on the native runtime; an attack that
// another runtime cannot have, or that only native's own processes show, is skipped there with its reason.
#pragma once

#include <string>
#include <vector>

#include "escape/row.h"

namespace caisson::escape {

const std::vector<std::string>& RuntimeNames();

// Why the row proves nothing in this runtime; empty: it does.
std::string WhyNotIn(const std::string& runtime, const std::string& row);

// A kernel of another kind refuses the same things with other errors, and the command ends where that kernel grants a
// call that the profile forbids. What must be reported stays the same.
ParkedSetup ExpectIn(const std::string& runtime, ParkedSetup expect);

}  // namespace caisson::escape
