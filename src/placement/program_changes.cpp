#include "placement/program_changes.h"

#include <sys/mman.h>

#include "monitor/libc_hooks.h"
#include "placement/kernel_pages.h"

namespace pinion {

void ProgramChanges::note_replaced(Range range) { arena_.note_replaced(range); }

void ProgramChanges::note_deprived(Range range) { arena_.marks.set(Mark::deprived, range); }

void ProgramChanges::note_kept(Range range) {
  arena_.marks.clear(Mark::laid_over, range);
  arena_.marks.clear(Mark::replaced, range);
}

void ProgramChanges::advise(Range range, int advice, bool wish) {
  if (wish && advice == MADV_DONTFORK) {
    arena_.marks.set(Mark::unshared, range);
  } else if (wish && advice == MADV_DOFORK) {
    arena_.marks.clear(Mark::unshared, range);
    children_.show_until_fork();
  }
}

bool ProgramChanges::withhold(Range range) {
  if (is_replaced(range)) {
    note_replaced(range);
    return empty_heard(range);
  }
  note_deprived(range);
  arena_.marks.set(Mark::withheld, range);
  withheld_.store(true);
  unlock(range);
  return protect_unseen(range, PROT_NONE);
}

void ProgramChanges::unlock(Range range) const {
  if (!locks_future_.load(std::memory_order_relaxed)) unlock_unseen(range);
}

}  // namespace pinion
