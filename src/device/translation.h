// How many translation entries a NIC needs for a range: what registration costs grow with.
// Stateless; any thread; one open and one ioctl of /proc/self/maps, a few us, which registration does not
// feel.
#pragma once

#include <cstddef>

#include "base/range.h"

namespace pinion {

/// The pages of a range, hugetlb pages where all of it lies in one hugetlb mapping: a NIC has one page size
/// for each region, so a single ordinary page at either end makes all of them ordinary. Transparent hugepages
/// count as the ordinary pages that they may become again. Kernels before 6.11 do not tell the page size
/// cheaply: there every page counts as ordinary.
std::size_t translation_entries(Range pages);

}  // namespace pinion
