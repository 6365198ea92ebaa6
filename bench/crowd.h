// Many sandboxes alive at once: the cost of each, and the cost of the next one beside them.
#pragma once

#include "base/result.h"
#include "runtime/runtime.h"

namespace caisson::bench {

// Starts `size` sandboxes, one after the other, each with a shell that sleeps, and holds them until a line comes on
// standard input; then ends all at once. Before the first and beside all of them it times `probes` runs of /bin/true.
// Writes three lines to standard output, one JSON object each: {"alone"}, then, once all are alive, {"starts",
// "beside"}, and {"end"} when nothing is left. Times are nanoseconds, "end" from the order until the last one's
// removal.
Status HoldCrowd(runtime::Runtime& runtime, int size, int probes);

}  // namespace caisson::bench
