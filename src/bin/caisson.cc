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
#include "runtime/engine/engine.h"
#include "runtime/kubernetes/kubernetes.h"
#include "runtime/microvm/microvm.h"
#include "runtime/native/launched.h"
#include "runtime/native/native.h"
#include "runtime/oci/gvisor.h"
#include "runtime/oci/oci.h"

namespace {

constexpr char kHelp[] = R"(caisson: runs untrusted code in a sandbox, and reports truthfully what it did.

  caisson verify PATH          check a Python file, a directory or a request; pass, fail, or which rule it broke
  caisson run -- COMMAND       run a command in a sandbox
  caisson session COMMAND      sandboxes that stay: run commands in one, then apply or discard what they changed
  caisson image COMMAND        root file systems for --image: import, list, show, rm, gc, export
  caisson policy COMMAND       read, check, explain, compare and render the isolation spec
  caisson doctor               what this machine can enforce, and how to fix what it cannot
  caisson selftest             attack the sandbox from inside, and check from outside that it held
  caisson audit verify FILE    check that the audit log is unchanged
  caisson attest COMMAND       sign results, and check signatures anywhere

With CAISSON_LAUNCHER=PATH in the environment, the caisson-launcher that listens there creates
the sandboxes of run, verify and doctor.

With a service (caissond), on this machine or another:

  caisson submit PATH          verify PATH at the service; --wait for the result
  caisson list, status, events, logs, result, artifacts, cancel
  caisson approvals COMMAND    list, show, grant and deny approvals
  caisson dlq COMMAND          list, show, requeue and drop jobs without a verdict

Each command explains itself: caisson COMMAND --help. Version: caisson --version.
)";

constexpr std::pair<const char*, int (*)(std::vector<std::string>)> kServiceCommands[] = {
    {"submit", caisson::cli::SubmitCommand},       {"status", caisson::cli::StatusCommand},
    {"list", caisson::cli::ListCommand},           {"logs", caisson::cli::LogsCommand},
    {"events", caisson::cli::EventsCommand},       {"result", caisson::cli::ResultCommand},
    {"artifacts", caisson::cli::ArtifactsCommand}, {"cancel", caisson::cli::CancelCommand},
    {"approvals", caisson::cli::ApprovalsCommand}, {"dlq", caisson::cli::DlqCommand},
};

// Descriptors 0 to 2 must be open: otherwise one of our files would get such a number and be used as a stream.
void OpenStandardStreams() {
  int fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd < 3) fd = ::dup(fd);
  if (fd >= 3) ::close(fd);
}

// Sandboxes are made in this process, or by the launcher that the caller names. The native runtime is the first and the
// weakest; the others look for their programs when they are chosen.
caisson::runtime::Runtimes MakeRuntimes() {
  const char* launcher = ::getenv("CAISSON_LAUNCHER");
  caisson::runtime::Runtimes runtimes;
  runtimes.push_back(launcher == nullptr ? caisson::runtime::native::MakeNativeRuntime()
                                         : caisson::runtime::native::MakeLaunchedRuntime(std::string(launcher)));
  runtimes.push_back(caisson::runtime::oci::MakeOciRuntime());
  runtimes.push_back(caisson::runtime::oci::MakeGvisorRuntime());
  runtimes.push_back(caisson::runtime::engine::MakeEngineRuntime());
  runtimes.push_back(caisson::runtime::microvm::MakeMicrovmRuntime());
  runtimes.push_back(caisson::runtime::kubernetes::MakeKubernetesRuntime());
  return runtimes;
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
  if (command == "image") return caisson::cli::ImageCommand(std::move(arguments));
  if (command == "audit") return caisson::cli::AuditCommand(std::move(arguments));
  if (command == "attest") return caisson::cli::AttestCommand(std::move(arguments));
  if (command == "selftest") return caisson::cli::SelftestCommand(std::move(arguments));
  for (const auto& [name, run] : kServiceCommands)
    if (command == name) return run(std::move(arguments));
  const caisson::runtime::Runtimes runtimes = MakeRuntimes();
  if (command == "policy") return caisson::cli::PolicyCommand(std::move(arguments), runtimes);
  if (command == "session") return caisson::cli::SessionCommand(std::move(arguments), runtimes);
  if (command == "run") return caisson::cli::RunCommand(std::move(arguments), runtimes);
  if (command == "verify") return caisson::cli::VerifyCommand(std::move(arguments), runtimes);
  if (command == "doctor") return caisson::cli::DoctorCommand(std::move(arguments), runtimes);
  std::fprintf(stderr, "caisson: there is no command \"%s\" (see: caisson --help)\n", command.c_str());
  return 2;
}
