// How many translation entries a NIC needs for a range: registration costs grow with them.
// Stateless; any thread, outside of hooks; opens one file of /proc/self or two, 4 us each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/range.h"

namespace pinion {

/// The entries of a registered range for a device with these sizes of entries (DeviceCapabilities).
///
/// A driver chooses one size for all of a region: the largest that fits addresses and frames everywhere
/// (ib_umem_find_best_pgsz). Inside of hugepages, whether hugetlb or transparent, that is the hugepage's
/// size, also where the range begins or ends within one; pinned hugepages keep their frames. A single
/// ordinary page makes all entries ordinary. Frames of ordinary pages are unknown here, and count as
/// scattered.
///
/// Linux 6.7 and later show hugepages that are mapped as such. On older kernels all pages count as ordinary;
/// so does a hugepage mapped page by page (after a partial unmap, for example).
std::size_t translation_entries(Range pages, std::uint64_t page_sizes);

}  // namespace pinion
