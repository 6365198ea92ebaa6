// The commands of the caisson program, one file each. `arguments` are those after the command's name; the returned
// value is the exit code.
#pragma once

#include <string>
#include <vector>

#include "runtime/runtime.h"

namespace caisson::cli {

int RunCommand(std::vector<std::string> arguments, const runtime::Runtimes& runtimes);
int VerifyCommand(std::vector<std::string> arguments, const runtime::Runtimes& runtimes);
int SessionCommand(std::vector<std::string> arguments, const runtime::Runtimes& runtimes);
int PolicyCommand(std::vector<std::string> arguments, const runtime::Runtimes& runtimes);
int DoctorCommand(std::vector<std::string> arguments, const runtime::Runtimes& runtimes);
int ImageCommand(std::vector<std::string> arguments);
int AuditCommand(std::vector<std::string> arguments);
int AttestCommand(std::vector<std::string> arguments);
int SelftestCommand(std::vector<std::string> arguments);

// Of a service: caissond.
int SubmitCommand(std::vector<std::string> arguments);
int StatusCommand(std::vector<std::string> arguments);
int ListCommand(std::vector<std::string> arguments);
int LogsCommand(std::vector<std::string> arguments);
int EventsCommand(std::vector<std::string> arguments);
int ResultCommand(std::vector<std::string> arguments);
int ArtifactsCommand(std::vector<std::string> arguments);
int CancelCommand(std::vector<std::string> arguments);
int ApprovalsCommand(std::vector<std::string> arguments);
int DlqCommand(std::vector<std::string> arguments);

}  // namespace caisson::cli
