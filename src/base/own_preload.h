// Tells Pinion's own words in LD_PRELOAD from others. Pure; any thread.
#pragma once

#include <string_view>

namespace pinion {

/// Returns whether the path is that of one of Pinion's preload libraries.
inline bool is_own_preload(std::string_view path) {
  return path.substr(path.rfind('/') + 1).starts_with("libpinion-");
}

}  // namespace pinion
