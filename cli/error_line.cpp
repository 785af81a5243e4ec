#include "cli/error_line.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/shown_text.h"

namespace pinion::cli {

void print_error_line(const std::string& text, const std::string& who) {
  fmt::print(stderr, "{}: {}\n", who, printable(text));
}

}  // namespace pinion::cli
