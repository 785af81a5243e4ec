// The name that a user may have meant. A pure function; it allocates, so outside of hooks.
#pragma once

#include <string_view>
#include <vector>

namespace pinion {

/// The valid name that takes the fewest letters to change, add or leave out; empty where that is more than
/// half of them.
std::string_view nearest_name(std::string_view given, const std::vector<std::string_view>& valid);

}  // namespace pinion
