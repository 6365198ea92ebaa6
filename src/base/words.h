// Words in messages: quotes input and suggests corrections of misspelt words.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace caisson {

// `text` in quotes, cut when long, safe for a terminal.
std::string Quoted(std::string_view text);

// The word of `known` that `word` is most likely a misspelling of; empty when there is none.
std::string_view Nearest(std::string_view word, std::span<const std::string_view> known);

}  // namespace caisson
