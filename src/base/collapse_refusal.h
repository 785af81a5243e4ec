// Why memory that could have lain in transparent hugepages stays as it is. Logs hold these numbers.
#pragma once

#include <cstdint>

namespace pinion {

enum class CollapseRefusal : std::uint8_t {
  absent,     ///< a page of the unit is not there
  shared,     ///< a page is a file's, merged, or a child's too
  in_use,     ///< a page is pinned, or the unit changes
  memory,     ///< there is no hugepage, or the control group has no room
  forbidden,  ///< the kernel or the program does not allow it there
  not_now,    ///< a fork, the program's userfaultfd, its sandbox, or its real-time threads
};
inline constexpr unsigned kCollapseRefusals = 6;

}  // namespace pinion
