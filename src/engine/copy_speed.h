// How fast this machine copies memory: what a transfer through a bounce buffer would take. Any thread; not
// from hooks.
#pragma once

namespace pinion {

/// Bytes per ns, of the best of three copies that fit into no private cache. Takes some milliseconds. In
/// memory of its own: a program's heap must not depend on who measures (glibc moves its threshold between
/// heap and mmap with the largest block that is freed). 1 where there is no memory for it.
double measure_copy_speed();

}  // namespace pinion
