#include "lease/arena_source.h"

#include <utility>

#include "base/warning.h"

namespace pinion {

/// Registers the segment first, where that may be.
bool ArenaSource::open(ThreadContext& thread, int number, Range request, Access access, Transfer& transfer) {
  if (may_open(number) && register_segment(thread, number, request, kNever) &&
      take(thread, number, request, access, transfer))
    return true;
  thread.counters[number].arena_passed.add(1);
  return false;
}

bool ArenaSource::may_open(int number) const {
  return !domains_.observes(number) && !domains_.domain(number).registers_bytes() &&
         !watch_.keeps_nothing() && !watch_.blind() && closing_.may_open();
}

bool ArenaSource::prepare(ThreadContext& thread, int number, Range segment, Duration expected) {
  const Range first_page{segment.begin, segment.begin + page_size()};
  return !may_open(number) || register_segment(thread, number, first_page, expected);
}

/// may_open() holds. False: the segment stays unregistered. It may be open, for all that this thread
/// knows, if true.
bool ArenaSource::register_segment(ThreadContext& thread, int number, Range request, Duration expected) {
  closing_.retire_closed(thread);  // an earlier registration of the segment may be over
  const bool ahead = expected != kNever;
  const Range pages = leases_.begin_opening(number, request, ahead);
  if (pages.empty()) return true;
  Record none;
  if (ahead) none.call = CallKind::prepare;
  none.domain = static_cast<unsigned>(number);
  const AcquireResult result = steps_.run(
      thread,
      {.pages = pages, .access = leases_.rights(), .owner = &leases_, .expected = ahead ? expected : 0},
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
