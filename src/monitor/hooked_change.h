// One change of memory on its way through the hooks: the events before the system call and after it, and what
// their answer makes of the call. Lives in the replacement's frame. Any thread, any signal handler, a child
// of vfork; no locks, no allocation.
#pragma once

#include <sys/syscall.h>

#include <cerrno>

#include "monitor/libc_hooks.h"
#include "monitor/memory_calls.h"
#include "monitor/system_call.h"

namespace pinion {

/// Sets the callbacks of the events. Ordinary code, one thread.
void report_changes_to(const HookCallbacks& callbacks);
/// Threads that have begun an event still end it.
void stop_reporting_changes();

class HookedChange {
 public:
  /// Begins an event for each range, as long as the answers are to go on.
  HookedChange(long system_call, const SystemCallArguments& arguments, const ConcernedMemory& memory);
  /// Ends them in reverse order.
  ~HookedChange();
  HookedChange(const HookedChange&) = delete;
  HookedChange& operator=(const HookedChange&) = delete;

  Answer answer() const { return answer_; }
  /// True if a copy of the first range is to move.
  bool copies() const { return copies_; }

 private:
  const Range ranges_[2];
  void (*end_)(Range) = nullptr;
  Answer answer_ = Answer::proceed;
  bool copies_ = false;
  int begun_ = 0;
};

/// A mapping with the contents of the memory: its address, or -ENOMEM.
long copy_memory(Range memory);
void drop_copy(long copy, Range memory);

/// Makes the call, whose result is in the kernel's form, between the events; or has its result from their
/// answer.
template <class MakeCall>
long bracketed(long system_call, const SystemCallArguments& arguments, const ConcernedMemory& memory,
               MakeCall&& make_call) {
  if (memory.empty()) return make_call(arguments);
  const HookedChange change(system_call, arguments, memory);
  if (change.answer() == Answer::refuse) return -ENOMEM;
  if (change.answer() != Answer::proceed) return system_call == SYS_mremap ? arguments[0] : 0;
  if (!change.copies()) return make_call(arguments);
  const long copy = copy_memory(memory.first);
  if (is_error(copy)) return copy;
  SystemCallArguments moving = arguments;
  moving[0] = copy;
  const long result = make_call(moving);
  if (is_error(result)) drop_copy(copy, memory.first);
  return result;
}

/// Asks the sinks what form the mapping of an mmap should have.
MappingWish wish_for(const SystemCallArguments& arguments);
/// Reports a mapping that has appeared.
void report_appeared(long system_call, const SystemCallArguments& arguments, long result, Range tail = {});

}  // namespace pinion
