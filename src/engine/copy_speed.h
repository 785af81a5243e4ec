// Measures how fast this machine copies memory: the cost of a transfer through a bounce buffer. Any thread;
// not from hooks.
#pragma once

namespace pinion {

/// Bytes per ns, of the best of three copies that fit into no private cache. Takes some milliseconds. In
/// memory of its own: measuring must not change the program's heap (glibc moves its threshold between heap
/// and mmap with the largest block that is freed). 1 where memory is short.
double measure_copy_speed();

}  // namespace pinion
