// The lines that differ between two texts, for unified patches.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace caisson::session {

// Lines [old_begin, old_end) are replaced by [new_begin, new_end).
struct LineEdit {
  size_t old_begin = 0, old_end = 0, new_begin = 0, new_end = 0;
};

std::vector<std::string_view> SplitLines(std::string_view text);  // each with its newline, if it has one

// Myers' algorithm. Texts that differ in more lines than it may compare become one edit: right, but not minimal.
std::vector<LineEdit> DiffLines(const std::vector<std::string_view>& before,
                                const std::vector<std::string_view>& after);

// The hunks of a unified diff with three lines of context.
std::string UnifiedHunks(std::string_view before, std::string_view after);

}  // namespace caisson::session
