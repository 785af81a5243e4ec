// How much memory this machine has. Owns nothing; any thread, outside of hooks.
#pragma once

#include <unistd.h>

#include <cstdint>

#include "base/range.h"

namespace pinion {

/// In bytes.
inline std::uint64_t machine_memory() {
  static const std::uint64_t bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page_size();
  return bytes;
}

}  // namespace pinion
