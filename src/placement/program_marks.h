// Marks on chunks show what the program has done to memory of the arena. A segment is registered without
// chunks that are deprived or replaced: the longest part between them. The heap makes marked memory whole
// when it becomes a block again (block_memory.h).
//
// Owns the marks, and for each granule whether it has had any: memory without marks costs one look.
// Lock-free: any thread, hooks too.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "placement/chunk_marks.h"
#include "placement/granules.h"
#include "placement/page_source.h"

namespace pinion {

enum class Mark : std::uint8_t {
  deprived,   ///< the program took rights from the memory
  replaced,   ///< other pages took its place; a registration may have the old ones
  laid_over,  ///< replaced, and the program's mapping still lies there
  unshared,   ///< the program keeps it from its children
  withheld,   ///< memory of blocks that the program has unmapped
};

class ProgramMarks {
 public:
  constexpr explicit ProgramMarks(const Granules& granules) : granules_(granules) {}

  /// Before threads allocate. False: memory for the marks is short.
  bool begin(Range arena, PageSource& source);

  void set(Mark mark, Range range);
  /// Other pages take the place of this memory, and of what the program wished for it.
  void set_replaced(Range range);
  void clear(Mark mark, Range range) { of(mark).clear(range); }
  /// Clears the wishes for memory whose block has ended, or that other memory has replaced.
  void clear_wishes(Range range) {
    clear(Mark::unshared, range);
    clear(Mark::withheld, range);
  }
  /// Clears all marks of a segment whose memory has gone.
  void forget(Range segment);

  bool any(Mark mark, Range range) const { return of(mark).any(range); }
  /// Whether the range lies in the arena, and some chunk of its granules has had a mark.
  bool may_have(Range range) const;
  bool is_whole(Range range) const { return !any(Mark::deprived, range) && !any(Mark::replaced, range); }
  /// The longest part of the segment that is whole.
  Range longest_whole(Range segment) const;
  /// The first part over which the program's mappings lie; empty: there is none.
  Range laid_over(Range range) const { return may_have(range) ? first_run(Mark::laid_over, range) : Range{}; }
  Range first_run(Mark mark, Range range) const;
  template <class Visit>
  void for_each_run(Mark mark, Range range, Visit&& visit) const {
    of(mark).for_each_run(range, true, visit);
  }
  /// Calls visit(range) for each part without the mark.
  template <class Visit>
  void for_each_gap(Mark mark, Range range, Visit&& visit) const {
    of(mark).for_each_run(range, false, visit);
  }

 private:
  static constexpr std::size_t kMarks = 5;

  ChunkMarks& of(Mark mark) { return marks_[static_cast<std::size_t>(mark)]; }
  const ChunkMarks& of(Mark mark) const { return marks_[static_cast<std::size_t>(mark)]; }

  const Granules& granules_;
  std::array<ChunkMarks, kMarks> marks_{};
  std::array<std::atomic<bool>, Granules::kMost> had_mark_{};  ///< by granule
};

}  // namespace pinion
