#include "engine/arena_source.h"

#include <utility>

#include "base/warning.h"

namespace pinion {

/// Registers the segment first, where that may be.
bool ArenaSource::open(ThreadContext& thread, int number, Range request, Access access, Transfer& transfer) {
  if (register_segment(thread, number, request) && take(thread, number, request, access, transfer))
    return true;
  thread.counters[number].arena_passed.add(1);
  return false;
}

/// False: the segment stays unregistered. It may be open, for all that this thread knows, if true.
bool ArenaSource::register_segment(ThreadContext& thread, int number, Range request) {
  if (domains_.observes(number) || domains_.domain(number).registers_bytes() || watch_.keeps_nothing() ||
      watch_.blind() || !closing_.may_open())
    return false;
  closing_.retire_closed(thread);  // an earlier registration of the segment may be over
  const Range pages = leases_.begin_opening(number, request);
  if (pages.empty()) return true;
  Record none;
  none.domain = static_cast<unsigned>(number);
  const AcquireResult result = steps_.run(
      thread,
      {.pages = pages, .access = leases_.rights(), .owner = &leases_, .view = leases_.view_of(pages).begin},
      none);
  leases_.finish_opening(number, pages, result.region);
  if (result.region != nullptr) return true;
  closing_.retire_closed(thread);
  if (!reported_.exchange(true))
    warn(
        "a segment of the arena stays unregistered, and its requests are served one by one: "
        "%s (said once)",
        result.error.message);
  return false;
}

}  // namespace pinion
