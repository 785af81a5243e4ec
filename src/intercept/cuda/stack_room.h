// How much stack the calling thread has left. A program may give its threads 16 KiB, and the driver needs
// most of that: what takes more than a few KiB is left to other threads. Stateless; any thread, outside of
// memory hooks.
#pragma once

namespace pinion::cuda {

/// Whether there is room for the engine's start, or for a registration: they take up to 20 KiB. False on
/// stacks that the program has made itself. Takes a microsecond.
bool has_room_on_stack();

}  // namespace pinion::cuda
