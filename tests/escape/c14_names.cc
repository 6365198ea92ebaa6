// Names that attack programs which list, print or remove them: escape sequences, newlines, options, broken UTF-8, trees
// too deep for a path. They must vanish with the sandbox, and reach the operator only as harmless text.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// In the control's directory or in every place that can be written inside; and a refused write with each name, which is
// what makes Caisson speak of it.
constexpr char kLeave[] = R"(
names = [b'\x1b]0;owned\x07\x1b[31mred', b'new\nline', b'-rf', b'--', '\u00e9'.encode() * 127, b'\xff\xfe\x80',
         b'back\\slash', b'quote"\'', b'\x9b1A', '\u009b2J'.encode(), '\u202egnp.exe'.encode(), b'\x00'.replace(b'\x00', b'\x01'), b' ',
         b'caisson: pass', b'\r\x1b[2Kcaisson: pass', b'%s%n']
control = os.environ.get('CAISSON_CONTROL_DIRECTORY')
made = 0
for directory in [control] if control else ['/scratch', '/tmp', '/dev/shm', '/workspace']:
    directory = directory.encode()
    for name in names:
        path = directory + b'/' + name
        try:
            os.mkdir(path)
            os.close(os.open(path + b'/' + name, os.O_WRONLY | os.O_CREAT))
            os.symlink(path, path + b'/loop')
            made += 1
        except OSError: pass
# Deeper than a path can be long.
os.chdir(control or '/scratch')
for level in range(60):
    os.mkdir('d' * 100)
    os.chdir('d' * 100)
for name in names:
    if control: break
    try: os.mkdir(b'/usr/' + name)
    except OSError: pass
sys.stderr.buffer.write(b''.join(names))
if control and b'\x1b' in b''.join(os.listdir(control.encode())): escaped('the names are there')
blocked(0, f'left {made}')
)";

// The first byte that a terminal would act on, or that is not text.
std::string Harmful(const std::string& text) {
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) return "byte " + std::to_string(byte);
  }
  for (const char* sequence : {"\xc2\x9b", "\xe2\x80\xae"}) {
    if (text.find(sequence) != std::string::npos) return "a control character of Unicode";
  }
  // dump() throws on what is not UTF-8.
  const std::string plain = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore);
  const std::string strict = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return plain == strict ? "" : "broken UTF-8";
}

// The operator's view: Caisson's own messages without --quiet, events, and the result. The workload's own streams are
// passed through and not examined.
Judgement JudgeNames(Host& host) {
  const auto bare = host.RunControl("C14").Saw("C14");
  if (!bare || bare->seen != Seen::kEscaped) return Vacuous("such names cannot be made here");
  const std::string workspace = host.MakeDirectory(), outputs = host.MakeDirectory();
  ::chmod(workspace.c_str(), 0777);
  const std::string result = outputs + "/result.json", events = outputs + "/events";
  Command command;
  command.argv = {host.caisson(), "run",         "--timeout",        "60s", "--result", result, "--events",
                  events,         "--workspace", workspace + ":cow", "--"};
  // Its own standard error would be mixed with Caisson's.
  std::vector<std::string> probe = host.ProbeCommand("C14");
  probe.back() = "import os\nos.dup2(os.open('/dev/null', os.O_WRONLY), 2)\n" + probe.back();
  command.argv.insert(command.argv.end(), probe.begin(), probe.end());
  Outcome run;
  run.process = Process::Start(command).Finish(kPatienceMs);
  const auto saw = run.Saw("C14");
  if (!saw || saw->seen != Seen::kBlocked) return Broken("the probe did not run: " + run.process.err);
  if (run.process.err.find("fs.write") == std::string::npos)
    return Broken("Caisson said nothing of the refused writes");
  if (const std::string fault = Harmful(run.process.err); !fault.empty())
    return Broken("what Caisson prints holds " + fault);
  for (const std::string& file : {result, events}) {
    const std::string text = ReadText(file);
    if (text.empty()) return Broken(file + " was not written");
    if (const std::string fault = Harmful(text); !fault.empty()) return Broken(file + " holds " + fault);
  }
  const auto document = ParseResult(ReadText(result));
  if (!document || document->violations.empty()) return Broken("the result is not JSON, or says nothing");
  for (const auto& entry : std::filesystem::directory_iterator(workspace))
    return Broken("left in the workspace: " + entry.path().filename().string());
  return Held("all gone, and only harmless text was printed");
}

const Registration kRow(Row{
    .id = "C14",
    .title = "hurtful names: escape sequences, newlines, broken UTF-8, deep trees",
    .severity = Severity::kIntegrity,
    .walls = {"own scratch", "escaped output"},
    .attempts = {{.python = kLeave, .judge_only = true}},
    .judge = JudgeNames,
});

}  // namespace

}  // namespace caisson::escape
