// The system's setting of transparent hugepages. Owns no state: each call reads the kernel's file, so its
// callers keep the answer. Any thread, in hooks too.
#pragma once

#include <cstdint>

namespace pinion {

enum class TransparentHugepages : std::uint8_t {
  absent,  ///< the kernel has none, or does not show the setting
  never,   ///< an administrator has switched them off
  given,   ///< to all memory, or to memory that is advised to have them
};
TransparentHugepages transparent_hugepages();

}  // namespace pinion
