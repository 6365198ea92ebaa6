// The process that unpacks: started, listened to, and gone when its owner goes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::intake {

class HelperProcess {
 public:
  // Starts caisson-intake from our own program's directory with `input` as its standard input and nothing else of ours.
  // Safe in a program with threads.
  static Result<HelperProcess> Start(int input, const std::vector<std::string>& arguments);

  HelperProcess(HelperProcess&& other) noexcept;
  HelperProcess& operator=(HelperProcess&&) = delete;
  ~HelperProcess();  // kills and reaps

  // Passes on what it writes until it has ended, well. Errors: those of `take`; kInvalid when it was killed, by the
  // kernel for what it did or by us because `seconds` had passed: the archive made it do that.
  Status ReadUntilEnd(const std::function<Status(std::string_view)>& take, int64_t seconds);

 private:
  HelperProcess(pid_t pid, UniqueFd output) : pid_(pid), output_(std::move(output)) {}
  Status Reap();

  pid_t pid_;
  UniqueFd output_;
};

}  // namespace caisson::intake
