// Names of parameters as GoogleTest takes them: letters, digits, underscores.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>

namespace pinion::test {

inline std::string test_name(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return text;
}

}  // namespace pinion::test
