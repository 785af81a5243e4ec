// Second views of the arena's memory, as preregistration-eurompi16 has them: by option, segments are shared
// memory with two views. The program knows one, and devices register the other, which the program cannot
// address. The heap keeps both while the segment lasts. Where the system refuses a second view, the segment
// is private memory like any other.
//
// Children lack both views at any time, for they would share what they write: they get copies of the blocks,
// in ordinary memory (child_memory.h).
//
// Owns the second views, by granule. map() and forget() are called under the mutex of the segments' table;
// all else is lock-free, for any thread, hooks too.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "placement/granules.h"
#include "placement/page_source.h"
#include "placement/program_marks.h"

namespace pinion {

class SecondViews {
 public:
  constexpr explicit SecondViews(const Granules& granules) : granules_(granules) {}

  /// Whether new segments have a second view. Before threads allocate.
  void use(bool used) { used_ = used; }
  /// Makes shared memory with two views at these reserved addresses. False: they are as before.
  bool map(Pages& pages);
  /// The views of a segment have gone.
  void forget(Range segment);

  /// The second view of memory in one segment; empty: it has none.
  Range of(Range range) const;
  /// Whether the range, wherever it is, begins in memory with two views.
  bool has(Range range) const { return used_ && granules_.range.contains(range) && !of(range).empty(); }
  /// Shows memory to children, except where it has a second view.
  void show(Range range) const;

  /// Answers madvise of memory that the program takes for private memory: an error number, or 0 for success.
  /// None: the kernel is to give the answer.
  std::optional<int> advise(Range range, int advice, const ProgramMarks& marks);
  /// Bytes of zeros written so far.
  std::uint64_t cleared_bytes() const { return cleared_.load(std::memory_order_relaxed); }

 private:
  void clear(Range range, const ProgramMarks& marks);

  const Granules& granules_;
  bool used_ = false;
  std::array<std::atomic<Address>, Granules::kMost> views_{};  ///< by granule; 0: it has none
  std::atomic<std::uint64_t> cleared_{0};
};

/// Writes zeros to a view.
void clear_view(Range view);

}  // namespace pinion
