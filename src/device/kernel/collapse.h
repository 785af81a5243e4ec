// Turns memory that is there into transparent hugepages (madvise's MADV_COLLAPSE, Linux 6.1), which register
// for a thirtieth. It takes some 500 us of the calling thread a hugepage. Its contents, its rights and its
// size in memory stay; other threads may use it meanwhile.
//
// A *unit* is an aligned range of a transparent hugepage's size. Owns nothing. Any thread, outside of hooks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/collapse_refusal.h"
#include "base/range.h"
#include "device/kernel/mapped_hugepages.h"

namespace pinion {

/// Why no memory of this process is ever collapsed.
enum class CollapseBar : std::uint8_t {
  none,
  unsupported,   ///< the kernel has no transparent hugepages, or does not show that it has
  never,         ///< the administrator has set them so
  large,         ///< one of them has over 32 MiB
  switched_off,  ///< for this process (prctl)
  old_kernel,    ///< that knows no MADV_COLLAPSE
};
/// The answer of the first call stays.
CollapseBar collapse_bar();
/// 0: there is a bar.
std::size_t collapse_unit();
/// Returns the unit of advice (MADV_HUGEPAGE), which older kernels take, too. 0: there is another bar.
std::size_t advice_unit();
/// Whether a thread of this process has a real-time policy, or processors are set aside for such threads.
/// Nothing is collapsed there: another thread's mmap would wait for it.
bool waits_matter();

struct Collapse {
  std::size_t bytes = 0;                           ///< that lie in hugepages now
  std::size_t made = 0;                            ///< of these: not before
  std::size_t refused_bytes[kCollapseRefusals]{};  ///< by CollapseRefusal: of whole units
  int error = 0;  ///< an errno for which it stopped; those of single units are passed over
};
/// Collapses the units of `range`, as far as they are wholly there on ordinary pages of this process alone:
/// none that is absent, swapped out, of a file, shared with a child, or merged. No region may hold them.
Collapse collapse(Range range, const PageFiles& files);

}  // namespace pinion
