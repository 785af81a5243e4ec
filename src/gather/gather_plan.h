// The cheapest list by which a device transfers scattered pieces: neighbours joined, an element each, or
// copied into a packed buffer. Owns nothing: a function of the pieces and of a device's costs
// (gather_costs.h). Any thread, hooks too; allocates nothing.
#pragma once

#include <cstddef>
#include <span>

#include "pinion/pinion.h"

namespace pinion {

/// Requests of so many bytes cost pinion_gather_costs::large_request_ns.
inline constexpr std::size_t kLargeRequest = std::size_t{128} << 10;

struct GatherPlan {
  std::size_t elements;                   ///< more than there is room for: nothing is planned
  const pinion_range* refused = nullptr;  ///< a piece where no memory can be: nothing is planned
};

/// Does what pinion_gather_plan() does; the other arguments are valid.
GatherPlan plan_gather(const pinion_gather_costs& costs, std::span<const pinion_range> pieces,
                       std::span<char> packed, std::span<pinion_gather_element> elements);

/// Copies the pieces of packed elements into them, or back.
void pack_gathered(const pinion_range* pieces, std::span<const pinion_gather_element> elements);
void unpack_gathered(const pinion_range* pieces, std::span<const pinion_gather_element> elements);

}  // namespace pinion
