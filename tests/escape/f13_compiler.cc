// A few lines that make a compiler do the work: endless includes, templates without an end, data that is large only in
// the output, and host files in the result.
//
// SAFETY: the controls' compiler may have 384 MiB of address space and five seconds.
#include <string>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

// compile(language, source, *flags) -> (the process, MiB it took at most)
const char kCompile[] = R"(
import resource, shutil, tempfile
if not shutil.which('g++'): not_applicable('there is no compiler')
work = tempfile.mkdtemp()
def bound():
    resource.setrlimit(resource.RLIMIT_AS, (384 << 20, 384 << 20))
    resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
def compile(language, source, *flags):
    result = subprocess.run(['gcc', '-x', language, '-', '-c', '-o', work + '/out.o', *flags], input=source, text=True,
                            cwd=work, capture_output=True, preexec_fn=bound, env={**os.environ, 'TMPDIR': work})
    return result, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
def clean(): shutil.rmtree(work, ignore_errors=True)
)";

Attempt MemoryBomb(const char* name, const std::string& program) {
  return {.name = name,
          .python = kCompile + program + R"(
clean()
if size > 80: escaped(f'the compiler took {size} MiB')
not_applicable(f'the compiler took {size} MiB: ' + result.stderr[-200:])
)",
          .expect = {.death = Death::kRequired, .reports = {{"MemoryLimitViolation", "limit.mem"}}},
          .flags = {"--memory", "64M"}};
}

const Registration kRow(Row{
    .id = "F13",
    .title = "compile bombs: endless includes, templates, giant data, host files",
    .severity = Severity::kSelfDenial,
    .walls = {"memory limit", "scratch size", "private root"},
    .attempts = {MemoryBomb("include", "result, size = compile('c', '#include \"/dev/zero\"\\n')\n"),
                 // Each names two others, thirteen levels down.
                 MemoryBomb("templates", R"(
result, size = compile('c++', '''
template <int N, int M> struct T { enum { v = T<N - 1, 2 * M>::v + T<N - 1, 2 * M + 1>::v }; };
template <int M> struct T<0, M> { enum { v = 1 }; };
int x = T<13, 1>::v;
''')
)"),
                 {.name = "data",
                  .python = std::string(kCompile) + R"(
result, size = compile('c', 'char a[64 << 20] = {1};\n')
made = result.returncode == 0 and os.path.getsize(work + '/out.o') >= 64 << 20
clean()
if made: escaped('an object of 64 MiB')
blocked(0, 'no room')
)",
                  // A file that may not be that long is refused before scratch is full, or after.
                  .expect = {.reports = {{.violation_class = "FilesystemWriteViolation",
                                          .reason = "scratch_limit",
                                          .optional = true}}},
                  .flags = {"--scratch", "24M"}},
                 {.name = "host_file",
                  .python = std::string(kCompile) + R"(
result, size = compile('assembler', f'.incbin "{canary("FILE")}"\n')
found = result.returncode == 0
clean()
if found: escaped('a file of the host is in the object')
if 'No such file' in result.stderr or 'not found' in result.stderr: blocked(0, 'no such file inside')
not_applicable(result.stderr[-200:])
)",
                  .expect = {.errnos = {0}}}},
});

}  // namespace

}  // namespace caisson::escape
