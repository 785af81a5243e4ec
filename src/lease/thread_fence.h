// A fence that one thread makes for all: the others order their own accesses by the compiler alone, without a
// locked instruction. Linux's membarrier, which interrupts each running thread of the process. Ordinary code.
#pragma once

namespace pinion {

/// Prepares the first fence. False: this system lacks it.
bool prepare_thread_fence();
/// Each thread's accesses before it in program order are seen by this thread; those after it see all that
/// this thread did before. False: refused.
bool thread_fence();

}  // namespace pinion
