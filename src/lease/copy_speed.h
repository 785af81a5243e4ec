// How fast this machine copies memory: the cost of a transfer through a bounce buffer. Any thread; not from
// hooks.
#pragma once

#include <string>

namespace pinion {

/// Bytes per ns, of the best of three copies that fit into no private cache. Takes some milliseconds. In
/// memory of its own: measuring must not change the program's heap (glibc moves its threshold between heap
/// and mmap with the largest block that is freed). 1 where memory is short.
double measure_copy_speed();

/// Like measure_copy_speed(), but of a user's processes on a node one in an hour measures, and the others
/// find the speed in a file in shared memory: measuring was a quarter of a rank's start. What another user
/// may have written there, or what is no speed, is not believed.
double known_copy_speed(const std::string& directory = "/dev/shm");

}  // namespace pinion
