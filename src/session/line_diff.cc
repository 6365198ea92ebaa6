#include "session/line_diff.h"

#include <algorithm>

namespace caisson::session {

namespace {

constexpr int kMaxDistance = 1500;  // lines added and removed; the work and the memory grow with its square
constexpr size_t kContext = 3;

// The edits between two lists without a common beginning or end; positions are moved by `skip`.
std::vector<LineEdit> Myers(const std::string_view* old_lines, int old_count, const std::string_view* new_lines,
                            int new_count, size_t skip) {
  const std::vector<LineEdit> whole = {
      {skip, skip + static_cast<size_t>(old_count), skip, skip + static_cast<size_t>(new_count)}};
  const int bound = std::min(old_count + new_count, kMaxDistance);
  std::vector<std::vector<int>> history;  // the furthest old position on each diagonal, for each distance
  std::vector<int> reach(static_cast<size_t>(2 * bound + 3), 0);
  const auto at = [bound](int diagonal) { return static_cast<size_t>(diagonal + bound + 1); };
  int found = -1;
  for (int distance = 0; distance <= bound && found < 0; ++distance) {
    for (int k = -distance; k <= distance; k += 2) {
      const bool down = k == -distance || (k != distance && reach[at(k - 1)] < reach[at(k + 1)]);
      int x = down ? reach[at(k + 1)] : reach[at(k - 1)] + 1;
      while (x < old_count && x - k < new_count && x - k >= 0 && old_lines[x] == new_lines[x - k]) ++x;
      reach[at(k)] = x;
      if (x >= old_count && x - k >= new_count) found = distance;
    }
    history.emplace_back(reach.begin() + static_cast<long>(at(-distance)),
                         reach.begin() + static_cast<long>(at(distance)) + 1);
  }
  if (found < 0) return whole;

  std::vector<LineEdit> edits;  // single lines, last first
  int x = old_count, y = new_count;
  for (int distance = found; distance > 0; --distance) {
    const std::vector<int>& previous = history[static_cast<size_t>(distance - 1)];
    const auto before = [&](int diagonal) {
      const int index = diagonal + distance - 1;
      return index < 0 || index >= static_cast<int>(previous.size()) ? -1 : previous[static_cast<size_t>(index)];
    };
    const int k = x - y;
    const bool down = k == -distance || (k != distance && before(k - 1) < before(k + 1));
    const int previous_x = before(down ? k + 1 : k - 1);
    const int previous_y = previous_x - (down ? k + 1 : k - 1);
    const auto position = [skip](int line) { return skip + static_cast<size_t>(line); };
    edits.push_back({position(previous_x), position(previous_x + (down ? 0 : 1)), position(previous_y),
                     position(previous_y + (down ? 1 : 0))});
    x = previous_x;
    y = previous_y;
  }
  std::reverse(edits.begin(), edits.end());
  std::vector<LineEdit> joined;
  for (const LineEdit& edit : edits) {
    if (!joined.empty() && joined.back().old_end == edit.old_begin && joined.back().new_end == edit.new_begin) {
      joined.back().old_end = edit.old_end;
      joined.back().new_end = edit.new_end;
    } else {
      joined.push_back(edit);
    }
  }
  return joined;
}

void AddLine(std::string& text, char mark, std::string_view line) {
  text += mark;
  text += line;
  if (line.empty() || line.back() != '\n') text += "\n\\ No newline at end of file\n";
}

std::string Range(size_t begin, size_t count) {
  // A range without lines names the line before it.
  std::string text = std::to_string(count == 0 ? begin : begin + 1);
  if (count != 1) text += "," + std::to_string(count);
  return text;
}

}  // namespace

std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const size_t length = end == std::string_view::npos ? text.size() : end + 1;
    lines.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return lines;
}

std::vector<LineEdit> DiffLines(const std::vector<std::string_view>& before,
                                const std::vector<std::string_view>& after) {
  size_t skip = 0;
  while (skip < before.size() && skip < after.size() && before[skip] == after[skip]) ++skip;
  size_t same_end = 0;
  while (same_end < before.size() - skip && same_end < after.size() - skip &&
         before[before.size() - 1 - same_end] == after[after.size() - 1 - same_end]) {
    ++same_end;
  }
  const size_t old_count = before.size() - skip - same_end, new_count = after.size() - skip - same_end;
  if (old_count == 0 && new_count == 0) return {};
  if (old_count == 0 || new_count == 0) return {{skip, skip + old_count, skip, skip + new_count}};
  return Myers(before.data() + skip, static_cast<int>(old_count), after.data() + skip, static_cast<int>(new_count),
               skip);
}

std::string UnifiedHunks(std::string_view before, std::string_view after) {
  const std::vector<std::string_view> old_lines = SplitLines(before), new_lines = SplitLines(after);
  const std::vector<LineEdit> edits = DiffLines(old_lines, new_lines);
  std::string text;
  for (size_t first = 0; first < edits.size();) {
    size_t last = first;
    while (last + 1 < edits.size() && edits[last + 1].old_begin - edits[last].old_end <= 2 * kContext) ++last;
    const size_t lead = std::min(kContext, edits[first].old_begin);
    const size_t tail = std::min(kContext, old_lines.size() - edits[last].old_end);
    const size_t old_begin = edits[first].old_begin - lead, old_end = edits[last].old_end + tail;
    const size_t new_begin = edits[first].new_begin - lead, new_end = edits[last].new_end + tail;
    text += "@@ -" + Range(old_begin, old_end - old_begin) + " +" + Range(new_begin, new_end - new_begin) + " @@\n";
    size_t line = old_begin;
    for (size_t i = first; i <= last; ++i) {
      for (; line < edits[i].old_begin; ++line) AddLine(text, ' ', old_lines[line]);
      for (; line < edits[i].old_end; ++line) AddLine(text, '-', old_lines[line]);
      for (size_t added = edits[i].new_begin; added < edits[i].new_end; ++added) AddLine(text, '+', new_lines[added]);
    }
    for (; line < old_end; ++line) AddLine(text, ' ', old_lines[line]);
    first = last + 1;
  }
  return text;
}

}  // namespace caisson::session
