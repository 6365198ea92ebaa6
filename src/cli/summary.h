// What a person sees of a verification: progress while it runs, and a short verdict.
#pragma once

#include <string>

#include "verify/result.h"

namespace caisson::cli {

class Summary {
 public:
  Summary(bool silent, std::string subject);
  void Started(const policy::PlannedCommand& command, size_t index, size_t count);
  void Finished(const verify::CheckRecord& record);
  void Print(const verify::VerificationResult& result);

 private:
  std::string Paint(const char* code, const std::string& text) const;
  void ClearProgress();

  bool silent_;
  bool colour_;    // standard output is a terminal and NO_COLOR is not set
  bool progress_;  // standard error is a terminal
  std::string subject_;
};

}  // namespace caisson::cli
