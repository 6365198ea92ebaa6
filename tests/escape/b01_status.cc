// The kernel's own word on what a process may do, for the first process and for one it has executed.
#include "escape/probe.h"

namespace caisson::escape {

namespace {

const Registration kRow(Row{
    .id = "B01",
    .title = "a process with privileges left: /proc/self/status of itself and a child",
    .severity = Severity::kEscape,
    .walls = {"capabilities", "no_new_privs", "seccomp", "user namespace"},
    .attempts = {{
        .python = R"(
def faults(text):
    status = dict(line.split(':\t', 1) for line in text.splitlines() if ':\t' in line)
    found = [n for n in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb') if int(status[n], 16)]
    if status['NoNewPrivs'] != '1': found.append('NoNewPrivs')
    if status['Seccomp'] != '2': found.append('Seccomp')
    if '0' in status['Uid'].split() + status['Gid'].split(): found.append('Uid')
    if '0' in status['Groups'].split(): found.append('Groups')
    return found
own = faults(pathlib.Path('/proc/self/status').read_text())
child = faults(subprocess.run(['cat', '/proc/self/status'], capture_output=True, text=True).stdout)
if own or child: escaped(f'own {own} child {child}')
blocked(0, 'no privilege')
)",
    }},
});

}  // namespace

}  // namespace caisson::escape
