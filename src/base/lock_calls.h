// The system calls of threads that meet at a lock: few runs make any. A program may have closed a sandbox
// around the calls that it has seen by then, so each start makes them once, to no effect. Owns nothing.
#pragma once

namespace pinion {

/// Any thread, outside of hooks.
void make_lock_calls();

}  // namespace pinion
