// Counts the translation entries that a NIC needs for a range: registration costs grow with them. Any thread,
// outside of hooks. Asks one file of /proc/self or two; to open one takes 4 us.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/range.h"
#include "device/kernel/mapped_hugepages.h"

namespace pinion {

/// The entries of a registered range for a device with these sizes of entries (DeviceCapabilities).
///
/// A driver chooses one size for all of a region: the largest that fits addresses and frames everywhere
/// (ib_umem_find_best_pgsz). Inside of hugepages, whether hugetlb or transparent, that is the hugepage's
/// size, also where the range begins or ends within one; pinned hugepages keep their frames. A single
/// ordinary page makes all entries ordinary. Frames of ordinary pages are unknown here, and count as
/// scattered.
std::size_t translation_entries(Range pages, std::uint64_t page_sizes, const PageFiles& files);
/// Counts once, with files that it opens for the call.
std::size_t translation_entries(Range pages, std::uint64_t page_sizes);

}  // namespace pinion
