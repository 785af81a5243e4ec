// The one place where error lines of the command are printed.
#pragma once

#include <string>

namespace pinion::cli {

/// Prints "WHO: TEXT" as one line on standard error. Names in the text may come from others: control
/// characters and line breaks become '?'.
void print_error_line(const std::string& text, const std::string& who = "pinion");

}  // namespace pinion::cli
