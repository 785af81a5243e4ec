// The state that the parts of the arena share. Each object has a guard of its own, as its header states.
#pragma once

#include "placement/kernel_pages.h"
#include "placement/program_marks.h"
#include "placement/segment_table.h"

namespace pinion {

struct ArenaState {
  Granules granules;
  ProgramMarks marks{granules};
  SegmentTable segments{granules};

  /// Other pages take the place of this memory. Children get those from the kernel. Lock-free; hooks call it.
  void note_replaced(Range range) {
    marks.set_replaced(range);
    hide_unseen(range, false);
  }
};

}  // namespace pinion
