#include "base/words.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/utf8.h"

namespace caisson {

namespace {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row[b.size()];
}

}  // namespace

std::string Quoted(std::string_view text) {
  constexpr size_t kMaxShown = 80;
  if (text.size() <= kMaxShown) return "\"" + EscapeForTerminal(text) + "\"";
  // Cut between code points, so that no half character is shown as an escape.
  size_t cut = kMaxShown;
  while (cut > 0 && (text[cut] & 0xC0) == 0x80) --cut;
  return "\"" + EscapeForTerminal(text.substr(0, cut)) + "...\"";
}

std::string_view Nearest(std::string_view word, std::span<const std::string_view> known) {
  constexpr size_t kMaxEdits = 2;
  std::string_view nearest;
  size_t best = kMaxEdits + 1;
  for (const std::string_view candidate : known) {
    const size_t longer = std::max(word.size(), candidate.size());
    const size_t shorter = std::min(word.size(), candidate.size());
    // A word that shares no letter with the candidate is not a misspelling of it, however short both are.
    if (longer - shorter > kMaxEdits || longer <= kMaxEdits) continue;
    const size_t distance = EditDistance(word, candidate);
    if (distance < best && distance < longer) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace caisson
