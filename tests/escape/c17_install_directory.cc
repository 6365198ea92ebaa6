// Where Caisson is installed: in what a workload has mapped, in its arguments, and in the names of its modules, which
// for Python from a warm interpreter are the interpreter's.
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// The names are put together here, or the program would find them in its own arguments.
const char kSearch[] = R"(
import os, sys
names = [('caisson' + rest).encode() for rest in ('_zygote.so', '-zygote.py', '-launcher', '-intake')]
found = []
for path in ('maps', 'smaps', 'numa_maps', 'cmdline', 'environ', 'auxv', 'mountinfo', '../1/cmdline', '../1/environ',
             '../1/maps', '../1/mountinfo'):
    try: data = open('/proc/self/' + path, 'rb').read()
    except OSError: continue
    if any(name in data for name in names): found.append(path)
for line in open('/proc/self/maps'):
    mapped = line.split(None, 5)[5].strip() if len(line.split(None, 5)) > 5 else ''
    if mapped.startswith('/') and not mapped.startswith('/memfd:') and not os.path.exists(mapped): found.append(mapped)
told = sys.argv[:1] + sys.orig_argv[:1]
for module in list(sys.modules.values()):
    told += [str(vars(module).get(name, '')) for name in ('__file__', '__cached__', '__spec__', '__path__')]
found += [text for text in told if any(name in text.encode() for name in names)]
found += [entry for entry in sys.path if not entry.startswith('/usr/')]
print('FOUND ' + ' '.join(found) if found else 'NOTHING')
)";

Judgement JudgeDirectory(Host& host) {
  // A bare interpreter that is given the directory finds it.
  Command bare;
  bare.argv = {"/usr/bin/python3", "-I", "-c", kSearch};
  bare.env = {{"CAISSON_C17", "/opt/caisson/bin/caisson_zygote.so"}};
  if (Process::Start(bare).Finish(kPatienceMs).out.find("FOUND environ") != 0)
    return Vacuous("not even a process that was told it finds it");
  const Outcome run = host.Run({.command = {"python3", "-I", "-c", kSearch}, .with_probe = false});
  if (run.process.out.find("NOTHING") != 0) return Broken(run.process.out + run.process.err);
  return Held("not in maps, arguments, environment or modules");
}

const Registration kRow(Row{
    .id = "C17",
    .title = "the directory that Caisson is installed in",
    .severity = Severity::kHostLeak,
    .walls = {"the warm interpreter is told no path"},
    .judge = JudgeDirectory,
});

}  // namespace

}  // namespace caisson::escape
