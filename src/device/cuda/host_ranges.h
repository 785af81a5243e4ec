// Host memory as the CUDA driver sees it in this process: ranges that Pinion has registered, or is about to,
// and ranges that are closed to registration, because a call of the program that uses them is in the driver,
// a graph may read them at any time, or the program has pinned them itself. The two never overlap: a call
// that reads memory which becomes registered meanwhile would be taken for one on pinned memory, and return
// before it has read (evidence-gpu.md). Ranges are of bytes; empty ones are ignored. Pinion's own pinned
// memory stands apart: no call of the program can mean it, whatever its rows lead around.
//
// Owns these sets; one mutex, held for a look-up only. Ordinary code of any thread; the sink's function alone
// is for hooks.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/range.h"
#include "device/cuda/block.h"
#include "monitor/event_board.h"
#include "monitor/memory_sink.h"

namespace pinion::cuda {

class HostRanges final : public MemorySink {
 public:
  // ---- the device ----

  /// Notes a registration that is about to be made. False: it would overlap another one, or a closed range.
  [[nodiscard]] bool begin_registration(Range range);
  /// Notes memory of Pinion's own, which stays pinned for ever.
  void add_own(Range range);
  /// The registration that begins there is gone, or was never made.
  void end_registration(Range range);
  /// In a forked child: all ranges are the parent's.
  void abandon_after_fork() NO_THREAD_SAFETY_ANALYSIS;

  // ---- the front ----

  /// Closes the blocks, which are in order and stay where they are, until open(). False: a registration of
  /// ours touches one of them; nothing is closed.
  [[nodiscard]] bool close(std::span<const Block> blocks);
  /// Undoes the close() of these very blocks.
  void open(std::span<const Block> blocks);
  /// Closes blocks for good, and what lies between their rows: until the memory is unmapped, if this object
  /// is a sink of memory events. The caller has closed them before.
  void bar(std::span<const Block> blocks);
  /// Closes a range that the program has pinned itself, until take_pinned().
  void add_pinned(Range range);
  /// Ends what add_pinned() began, by the first byte; returns the range. Nothing: there is none.
  std::optional<Range> take_pinned(Address begin);
  /// All that the program has pinned.
  std::vector<Range> pinned() const;
  /// The registration, or the memory of Pinion's own, that holds the address; nothing: there is none.
  std::optional<Range> registration_of(Address address) const;
  /// The registrations that the blocks touch, which are in order.
  std::vector<Range> registrations_in(std::span<const Block> blocks) const;
  bool touches_registration(Range range) const;
  /// The first registration that overlaps the range.
  std::optional<Range> first_registration(Range range) const;
  /// Whether one bar has all of the range, or the program has pinned it.
  bool is_barred(Range range);
  /// False: the range is closed, barred, or pinned by the program.
  bool may_register(Range range);

  // ---- memory events; hooks ----

  Answer changing(const MemoryChange& change) override;

 private:
  using UnmappedRanges = BasicEventBoard<256>;

  bool touches(Range range) const REQUIRES(mutex_);
  /// Calls `meet(registration)` for those that the blocks touch, until it returns true.
  template <class Meet>
  void meet_touched(std::span<const Block> blocks, Meet&& meet) const REQUIRES(mutex_);
  bool is_closed(Range range) const REQUIRES(mutex_);
  /// Ends bars whose memory has been unmapped.
  void unbar_unmapped() REQUIRES(mutex_);

  /// Ranges that never overlap: begin to end.
  using Ranges = std::map<Address, Address>;
  static void cut(Ranges& ranges, Range range);
  /// Adds a bar near another one, or near the end of all; returns the one that has it.
  Ranges::iterator add_bar(Ranges::iterator near, Range range) REQUIRES(mutex_);

  mutable Mutex mutex_;
  Ranges registered_ GUARDED_BY(mutex_);
  Ranges own_ GUARDED_BY(mutex_);
  std::vector<std::span<const Block>> closed_ GUARDED_BY(mutex_);  ///< one for each close()
  Ranges barred_ GUARDED_BY(mutex_);
  Ranges pinned_ GUARDED_BY(mutex_);
  UnmappedRanges unmapped_;  ///< near bars; the mutex guards reading
};

/// Returns those of the process.
HostRanges& host_ranges();

}  // namespace pinion::cuda
