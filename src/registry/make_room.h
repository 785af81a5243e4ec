// Room under limits that several domains share. Ordinary code of any thread, outside of slow locks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "registry/budget.h"
#include "registry/domain.h"

namespace pinion {

/// Whether a request of so many bytes fits if the domains' idle regions go. Requests that exceed even that
/// should leave all regions.
/// `for_each(f)` calls f with each domain.
template <class ForEach>
bool idle_regions_make_room(const Budget& budget, std::size_t bytes, ForEach&& for_each) {
  const std::uint64_t most = budget.most_bytes();
  std::uint64_t idle = 0, idle_regions = 0;
  for_each([&](Domain& domain) {
    for (const RegionRef& ref : domain.idle_regions()) {
      idle += ref.region->range().bytes();
      ++idle_regions;
    }
  });
  return bytes <= most && budget.bytes() <= most - bytes + idle &&
         budget.regions() - idle_regions < budget.limits().regions;
}

}  // namespace pinion
