// One line of standard error that says what is happening, for people at a terminal.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace caisson::cli {

class Progress {
 public:
  Progress(bool quiet, bool json);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // A check begins, the index-th of count.
  void Started(const std::string& check, size_t index, size_t count);
  // Shows an event of a job at a service. A wait for approval is also reported without a terminal.
  void On(const nlohmann::json& event);
  void Clear();

 private:
  void Show(const std::string& line);

  bool quiet_;
  bool live_;  // standard error is a terminal
};

}  // namespace caisson::cli
