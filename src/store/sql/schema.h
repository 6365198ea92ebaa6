// The tables, as numbered steps. A released step never changes; new steps are appended. A database records the number
// of steps that were applied.
#pragma once

#include <string>
#include <vector>

namespace caisson::store::sql {

// The parts of the schema that the two databases spell differently.
struct SchemaWords {
  const char* text;    // the type of a text that is ordered by its bytes
  const char* by_key;  // after a table of which the primary key should be the order on the disk
};

std::vector<std::string> SchemaSteps(const SchemaWords& words);

}  // namespace caisson::store::sql
