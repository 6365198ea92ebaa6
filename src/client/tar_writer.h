// Writes a tar of files at hand: the format GNU tar writes, with entries of their own for names and link targets that
// the header has no room for. Owners and times are left out: the same files give the same bytes.
#pragma once

#include <string>

#include "policy/plan.h"

namespace caisson::client {

class TarWriter {
 public:
  void Add(const policy::PlannedFile& file);
  // The whole archive; nothing can be added behind it.
  std::string Finish() &&;

 private:
  void AddEntry(char type, const std::string& name, const std::string& link_target, unsigned mode,
                const std::string& bytes);

  std::string archive_;
};

}  // namespace caisson::client
