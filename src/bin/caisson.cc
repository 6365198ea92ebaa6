// The caisson program: wiring only.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/version.h"
#include "cli/commands.h"
#include "runtime/native/launched.h"
#include "runtime/native/native.h"

namespace {

constexpr char kHelp[] = R"(caisson: runs code that nobody trusts, and says truthfully what it did.

  caisson verify PATH          check a Python file, a directory or a request; pass, fail, or which rule it broke
  caisson run -- COMMAND       run a command in a sandbox
  caisson policy COMMAND       read, check, explain, compare and render the isolation spec
  caisson doctor               what this machine can enforce, and how to fix what it cannot
  caisson selftest             attack the sandbox from inside, and check from outside that it held
  caisson audit verify FILE    is the audit log as it was written
  caisson attest COMMAND       sign results, and check signatures anywhere

With CAISSON_LAUNCHER=PATH in the environment, run, verify and doctor have their sandboxes made by the caisson-launcher
that listens there.

With a service (caissond), on this machine or another:

  caisson submit PATH          the same as verify, there; --wait for the result
  caisson list, status, events, logs, result, artifacts, cancel
  caisson approvals COMMAND    list, show, grant and deny what waits for people
  caisson dlq COMMAND          list, show, requeue and drop jobs that came to no verdict

Each command explains itself: caisson COMMAND --help. Version: caisson --version.
)";

constexpr std::pair<const char*, int (*)(std::vector<std::string>)> kServiceCommands[] = {
    {"submit", caisson::cli::SubmitCommand},       {"status", caisson::cli::StatusCommand},
    {"list", caisson::cli::ListCommand},           {"logs", caisson::cli::LogsCommand},
    {"events", caisson::cli::EventsCommand},       {"result", caisson::cli::ResultCommand},
    {"artifacts", caisson::cli::ArtifactsCommand}, {"cancel", caisson::cli::CancelCommand},
    {"approvals", caisson::cli::ApprovalsCommand}, {"dlq", caisson::cli::DlqCommand},
};

// Descriptors 0 to 2 must be somebody's: otherwise a file of ours would get the number and be taken for a stream.
void OpenStandardStreams() {
  int fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd < 3) fd = ::dup(fd);
  if (fd >= 3) ::close(fd);
}

// Sandboxes are made in this process, or by the launcher that the caller names.
std::unique_ptr<caisson::runtime::Runtime> MakeRuntime() {
  const char* launcher = ::getenv("CAISSON_LAUNCHER");
  if (launcher == nullptr) return caisson::runtime::native::MakeNativeRuntime();
  return caisson::runtime::native::MakeLaunchedRuntime(std::string(launcher));
}

}  // namespace

int main(int argc, char** argv) {
  OpenStandardStreams();
  const std::string command = argc > 1 ? argv[1] : "--help";
  std::vector<std::string> arguments(argv + (argc > 1 ? 2 : 1), argv + argc);
  if (command == "--help" || command == "-h" || command == "help") {
    std::fputs(kHelp, stdout);
    return argc > 1 ? 0 : 2;
  }
  if (command == "--version" || command == "version") {
    std::printf("caisson %s\n", caisson::kVersion);
    return 0;
  }
  if (command == "audit") return caisson::cli::AuditCommand(std::move(arguments));
  if (command == "attest") return caisson::cli::AttestCommand(std::move(arguments));
  if (command == "policy") return caisson::cli::PolicyCommand(std::move(arguments));
  if (command == "selftest") return caisson::cli::SelftestCommand(std::move(arguments));
  for (const auto& [name, run] : kServiceCommands)
    if (command == name) return run(std::move(arguments));
  const auto runtime = MakeRuntime();
  if (command == "run") return caisson::cli::RunCommand(std::move(arguments), *runtime);
  if (command == "verify") return caisson::cli::VerifyCommand(std::move(arguments), *runtime);
  if (command == "doctor") return caisson::cli::DoctorCommand(std::move(arguments), *runtime);
  std::fprintf(stderr, "caisson: there is no command \"%s\" (see: caisson --help)\n", command.c_str());
  return 2;
}
