// Counts the physical extents of memory. Ordinary code; reads /proc/self/pagemap.
#pragma once

#include <cstddef>
#include <optional>

#include "base/range.h"

namespace pinion::cli {

/// The extents of neighbouring frames under whole, touched pages. Empty where the kernel keeps frames secret:
/// it shows them to CAP_SYS_ADMIN only.
std::optional<std::size_t> physical_extents(Range pages);

}  // namespace pinion::cli
