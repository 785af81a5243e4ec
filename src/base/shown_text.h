// Text that other programs chose (names, arguments, paths), made safe to show on a terminal and to paste into
// a shell. Pure functions; those that return text allocate.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pinion {

/// Bytes of the UTF-8 sequence that begins at `at`; 0: there is none.
std::size_t utf8_sequence(std::string_view text, std::size_t at);

/// Replaces by '?' all control characters, marks that turn the direction of writing, and bytes that are no
/// UTF-8. The text keeps its length or becomes shorter.
void make_printable(char* text);
/// Returns the text with the same replacements.
std::string printable(std::string text);

/// One word of a shell.
std::string quoted(const std::string& word);

}  // namespace pinion
