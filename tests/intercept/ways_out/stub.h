// Shared by stub libraries and their programs. A stub's functions do nothing and succeed, but for the one
// that is armed: in the thread that leaves it calls what the program has it leave by.
#pragma once

#include <cstring>

/// The function whose next call leaves; null: none. Or another one, by so many calls of it.
extern const char* ways_out_armed;
extern const char* ways_out_armed_too;
extern int ways_out_calls_too;
/// By this.
extern void (*ways_out_leave)();
/// Whether the calling thread is the one that leaves: Pinion's own threads call the library, too.
extern thread_local bool ways_out_here;

/// For the stub: leaves, if the function of that name is armed.
inline void leave_if_armed(const char* name) {
  if (!ways_out_here || ways_out_armed == nullptr) return;
  const bool too = ways_out_armed_too != nullptr && std::strcmp(name, ways_out_armed_too) == 0;
  if (std::strcmp(name, ways_out_armed) != 0 && !(too && --ways_out_calls_too == 0)) return;
  ways_out_armed = ways_out_armed_too = nullptr;
  ways_out_here = false;
  ways_out_leave();
}
