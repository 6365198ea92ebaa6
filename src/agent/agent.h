// caisson-agent: the witness that travels with a workload into foreign walls (a container, a pod, a virtual machine).
// It is PID 1 there, so the kernel delivers it no signal from inside; it is undumpable, so no process inside can look
// into it; and it alone holds the stream to the runtime outside.
#pragma once

namespace caisson::agent {

// Serves the runtime at the other end of `input` and `output` until that end closes. Returns the exit code.
// `await_greeting`: says nothing before the runtime has spoken (Kind::kGreet).
int Serve(int input, int output, bool await_greeting);

}  // namespace caisson::agent
