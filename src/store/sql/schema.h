// The tables, as numbered steps. A step that was released is never changed: the next one is added. A database keeps the
// number of steps it has seen.
#pragma once

#include <string>
#include <vector>

namespace caisson::store::sql {

// What the two databases spell differently.
struct SchemaWords {
  const char* text;    // the type of a text that is ordered by its bytes
  const char* by_key;  // after a table of which the primary key should be the order on the disk
};

std::vector<std::string> SchemaSteps(const SchemaWords& words);

}  // namespace caisson::store::sql
