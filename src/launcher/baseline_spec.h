// The Spec that a parked sandbox is built with before its request is known: the walls of the profile that most requests
// use. A request that differs in these walls is still served, by a newly created PID 1. Generated from
// profiles/balanced.yaml.
#pragma once

#include "sandbox/spec.h"

namespace caisson::launcher {

sandbox::Spec BaselineSpec();

}  // namespace caisson::launcher
