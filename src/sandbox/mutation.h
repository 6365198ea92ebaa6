// The walls of the core that a test build can leave out.
#pragma once

#include "base/mutation.h"
