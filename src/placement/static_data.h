// Static data (.data and .bss of the program and of its libraries) in transparent hugepages. Big arrays of
// Fortran programs often lie there.
//
// .bss is anonymous memory: advice suffices, and its first touch takes hugepages. .data is a private mapping
// of the file, which has none: its whole hugepages are copied to anonymous memory that takes their place, at
// the same addresses. No thread may write to them meanwhile, so .data stays where it is in a process that
// has several already. Owns the record of what it placed.
#pragma once

#include <cstdint>

namespace pinion {

/// Once, from a constructor, before main(). Ordinary code; no lock held.
void place_static_data();

struct StaticData {
  std::uint64_t placed_bytes = 0;    ///< whole hugepages of .data and .bss
  std::uint64_t hugepage_bytes = 0;  ///< of them, in hugepages now, by the kernel's count
};
/// Allocates.
StaticData static_data();

}  // namespace pinion
