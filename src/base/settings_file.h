// The one form of Pinion's files of settings: one `name=value` a line, `#` begins a comment. Read before
// threads start; the reader keeps nothing. Not from hooks.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace pinion {

/// Takes one setting; an error ends the reading.
using TakeSetting = std::function<Error(std::string_view name, std::string_view value)>;

/// Calls `take` for each line in order. Errors begin with the file and, where there is one, the line:
/// `limits.conf:3: `.
Error read_settings(const std::string& path, const TakeSetting& take);

}  // namespace pinion
