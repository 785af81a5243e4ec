// Making memory present before it is pinned: a fault costs ten times a pin, and a pin that faults holds its
// ring, and the process's memory map, all the while. So faults come first, in steps of about a millisecond;
// a pin of no more than a step may come at once.
// Memory is never touched by this code itself (that would race with the program); the kernel populates it, or
// returns an error. Stateless; any thread; blocks.
#pragma once

#include <cstddef>

#include "base/error.h"
#include "base/function_ref.h"
#include "base/range.h"

namespace pinion {

/// Most bytes for one kernel call that may fault: 1,024 pages of 4 KiB at about 1 us.
constexpr std::size_t kFaultStep = std::size_t{4} << 20;

/// Makes the absent pages of `pages` present, writable ones of their own with `for_writing`. Cheap where
/// all are present (3 us for 16 MiB; populating blindly would cost as much as pinning). EFAULT when a page is
/// unmapped, or when an absent one forbids the access; ENOMEM when memory is short. On kernels before 5.14,
/// which cannot populate, it only finds unmapped pages.
Error fault_in(Range pages, bool for_writing);

/// Called before each kernel call that may fault: returns the most bytes of that call. It may wait first.
using StepBytes = FunctionRef<std::size_t()>;
/// Like the above, in the steps of the caller.
Error fault_in(Range pages, bool for_writing, StepBytes step_bytes);

/// Fails with EFAULT when any of `pages` is unmapped or forbids reading (with `for_writing`, writing); makes
/// them all present on the way. The slow, certain form of fault_in(): costs as much as pinning. On
/// kernels before 5.14 rights are taken on trust.
Error check_access(Range pages, bool for_writing);

}  // namespace pinion
