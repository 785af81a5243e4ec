#include "placement/child_memory.h"

#include <utility>

#include "placement/kernel_pages.h"

namespace pinion {

bool ChildMemory::hide(Range segment_part) const { return shown_.load() || hide_unseen(segment_part, true); }

void ChildMemory::show(Range range) const {
  hide_unseen(range, false);
  arena_.marks.for_each_run(Mark::unshared, range, [](Range run) { hide_unseen(run, true); });
}

void ChildMemory::before_fork() {
  arena_.segments.mutex.lock_for_fork();
  if (shown_.exchange(false)) hide_pinned();
  // A child cannot begin on a stack that it lacks.
  const auto stack = reinterpret_cast<Address>(__builtin_frame_address(0));
  if (!arena_.granules.range.contains({stack, stack + 1})) return;
  const Segment* const segment = arena_.segments.around(stack);
  if (segment == nullptr || !segment->pinned) return;
  show(segment->range);
  of_stack_ = segment->range;
}

/// Children have what took the place of a segment's memory in any case.
void ChildMemory::hide_pinned() const {
  arena_.segments.for_each([this](const Segment& segment) {
    if (!segment.pinned) return;
    hide_unseen(segment.range, true);
    arena_.marks.for_each_run(Mark::replaced, segment.range, [this](Range run) { show(run); });
  });
}

void ChildMemory::after_fork_in_parent() {
  if (!of_stack_.empty()) hide_pinned();
  of_stack_ = {};
  arena_.segments.mutex.unlock_after_fork();
}

bool ChildMemory::is_hidden(Range area) const NO_THREAD_SAFETY_ANALYSIS {
  if (!arena_.granules.range.contains(area)) return false;
  const Segment* const segment = arena_.segments.find(area);
  return segment->pinned && !(segment->range == of_stack_);
}

void ChildMemory::leave_out(Range area, Range copy) const {
  if (!arena_.granules.range.contains(area)) return;
  for (const Mark mark : {Mark::replaced, Mark::unshared})
    arena_.marks.for_each_run(mark, area, [&](Range range) {
      const Address begin = copy.begin + (range.begin - area.begin);
      unmap_unseen({begin, begin + range.bytes()});
    });
}

/// The blocks of hidden segments are there again, as copies. What the program keeps from its children is a
/// hole, which ends with its block like a mapping of the program's.
void ChildMemory::after_fork_in_child() NO_THREAD_SAFETY_ANALYSIS {
  arena_.segments.end_changes();
  arena_.segments.for_each([this](Segment& segment) NO_THREAD_SAFETY_ANALYSIS {
    const Range range = segment.range;
    const bool hidden = std::exchange(segment.pinned, false) && !(range == of_stack_);
    if (segment.of_heap)
      arena_.marks.for_each_run(Mark::unshared, range, [this](Range run) { arena_.note_replaced(run); });
    if (segment.of_heap || !arena_.marks.laid_over(range).empty()) return;
    if (!(hidden ? reserve_unseen_at(range) : empty_unseen(range))) return;
    arena_.marks.forget(range);
    arena_.segments.remove(range);
  });
  of_stack_ = {};
  arena_.segments.mutex.free_in_child();
}

}  // namespace pinion
