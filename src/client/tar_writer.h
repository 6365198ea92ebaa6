// Writes a tar archive in GNU tar's format, with extra entries for names and link targets that do not fit into the
// header. Owners and times are left out: the same files give the same bytes.
#pragma once

#include <string>

#include "policy/plan.h"

namespace caisson::client {

class TarWriter {
 public:
  void Add(const policy::PlannedFile& file);
  // Ends the archive and returns it; nothing can be added afterwards.
  std::string Finish() &&;

 private:
  void AddEntry(char type, const std::string& name, const std::string& link_target, unsigned mode,
                const std::string& bytes);

  std::string archive_;
};

}  // namespace caisson::client
