// What a sandbox is begun with before anybody has asked for it: the walls of the profile that most will ask for. A
// request that differs in them is served all the same, by a PID 1 made anew. Generated from profiles/balanced.yaml.
#pragma once

#include "sandbox/spec.h"

namespace caisson::launcher {

sandbox::Spec UsualGround();

}  // namespace caisson::launcher
