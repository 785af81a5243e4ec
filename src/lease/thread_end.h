// Lets fronts end what they have in a thread that ends: a call that the thread left by a jump long before.
#pragma once

namespace pinion {

struct ThreadContext;

/// Has `end` called by each thread that ends, while its context is still its own. Each front has one such
/// function, and may name it again.
void watch_thread_ends(void (*end)(ThreadContext&));

}  // namespace pinion
