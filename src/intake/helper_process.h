// The process that unpacks an archive. It ends with its owner.
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
  // Starts caisson-intake from our own program's directory with `input` as its standard input and no other descriptor.
  // Safe in a program with threads.
  static Result<HelperProcess> Start(int input, const std::vector<std::string>& arguments);

  // The same with a socket as its standard input, to which Exchange writes.
  static Result<HelperProcess> StartFed(const std::vector<std::string>& arguments);

  HelperProcess(HelperProcess&& other) noexcept;
  HelperProcess& operator=(HelperProcess&&) = delete;
  ~HelperProcess();  // kills and reaps

  // Passes on its output until it exits successfully. Errors: those of `take`; kInvalid if it was killed, by the kernel
  // for a forbidden call or by us after `seconds`: the archive caused it.
  Status ReadUntilEnd(const std::function<Status(std::string_view)>& take, int64_t seconds);

  // Writes what `give` returns, until that is nothing, and passes on its output meanwhile. The helper may end before it
  // has read everything. `seconds`: the longest time without progress.
  Status Exchange(const std::function<Result<std::string_view>()>& give,
                  const std::function<Status(std::string_view)>& take, int64_t seconds);

 private:
  HelperProcess(pid_t pid, UniqueFd output) : pid_(pid), output_(std::move(output)) {}
  Status Reap();
  // `left`: the bytes that `give` returned last and that are not yet written.
  Status WriteSome(const std::function<Result<std::string_view>()>& give, std::string_view& left);

  pid_t pid_;
  UniqueFd output_;
  UniqueFd input_;  // of one that is fed, until its end was written
};

}  // namespace caisson::intake
