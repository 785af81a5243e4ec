#include "base/shown_text.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace pinion {

namespace {

/// Terminals obey them, and pages would show names in another order.
bool is_unshown(std::string_view sequence) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(sequence[i]); };
  if (sequence.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7F;
  if (sequence.size() == 2)  // U+0080 to U+009F, U+061C
    return (byte(0) == 0xC2 && byte(1) < 0xA0) || (byte(0) == 0xD8 && byte(1) == 0x9C);
  if (sequence.size() != 3 || byte(0) != 0xE2) return false;
  return (byte(1) == 0x80 && (byte(2) == 0x8E || byte(2) == 0x8F || (byte(2) >= 0xA8 && byte(2) <= 0xAE))) ||
         (byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9);  // U+200E and F, 2028 to 202E, 2066 to 2069
}

}  // namespace

std::size_t utf8_sequence(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  const std::size_t bytes = first < 0x80                    ? 1
                            : first >= 0xC2 && first < 0xE0 ? 2
                            : first >= 0xE0 && first < 0xF0 ? 3
                            : first >= 0xF0 && first < 0xF5 ? 4
                                                            : 0;
  if (bytes == 0 || at + bytes > text.size()) return 0;
  for (std::size_t i = 1; i < bytes; ++i)
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  const bool is_overlong = (first == 0xE0 && byte(at + 1) < 0xA0) || (first == 0xF0 && byte(at + 1) < 0x90);
  const bool is_beyond = (first == 0xED && byte(at + 1) >= 0xA0) || (first == 0xF4 && byte(at + 1) >= 0x90);
  return is_overlong || is_beyond ? 0 : bytes;
}

void make_printable(char* text) {
  const std::string_view all(text, std::strlen(text));
  char* end = text;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t bytes = utf8_sequence(all, at);
    if (bytes == 0 || is_unshown(all.substr(at, bytes))) {
      *end++ = '?';
    } else {
      std::memmove(end, all.data() + at, bytes);
      end += bytes;
    }
    at += std::max<std::size_t>(bytes, 1);
  }
  *end = '\0';
}

std::string printable(std::string text) {
  make_printable(text.data());
  text.resize(std::strlen(text.c_str()));
  return text;
}

std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("-_./:=,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace pinion
