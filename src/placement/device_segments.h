// The arena's segments as devices use them: registered whole, once (lease/arena_leases.h).
//
// A segment that a device may have registered is *pinned*, and hidden from forked children (child_memory.h).
// A pinned segment that the heap gives back is *left*: its registrations are doomed at once, and its memory
// goes after unpin(). So there is never a hole under a registration, and new memory is always fresh from the
// kernel.
//
// Owns whom it tells of segments; takes the mutex of the segments' table. Ordinary code: leave(), give_back()
// and give_back_left() run hooks.
#pragma once

#include <atomic>

#include "placement/arena_state.h"
#include "placement/child_memory.h"

namespace pinion {

/// Is told that a segment has got its first block. Lives as long as the process.
class SegmentSink {
 public:
  /// Called under a shard's mutex: neither allocates nor waits.
  virtual void wanted() = 0;

 protected:
  ~SegmentSink() = default;
};

class DeviceSegments {
 public:
  constexpr DeviceSegments(ArenaState& arena, ChildMemory& children) : arena_(arena), children_(children) {}

  /// The segment at the address, if the heap has it; else an empty range.
  Range at(Address address);
  bool is_pinned(Address address);
  /// The number of the segment at the address; 0: there is none.
  std::uint64_t number_at(Address address);
  /// Before a registration: the part to register, which contains the request. Empty: there is none. `segment`
  /// may have gone, or be empty.
  Range pin(Range segment, Range request);
  /// After its last deregistration. True: the heap has left it; give_back() must follow.
  bool unpin(Range segment);

  /// The heap puts the first block into the segment: a device will want it.
  void want(Range segment);
  /// A segment that is wanted, and is so no longer; empty: there is none.
  Range take_wanted();
  /// `sink` is told from now on; null: nobody.
  void tell(SegmentSink* sink) { sink_.store(sink, std::memory_order_release); }

  /// The heap gives the segment back.
  void leave(Range segment);
  /// The memory of a segment that was left. It stays while a mapping of the program lies over it.
  void give_back(Range segment);
  /// Gives back the segment at the address, if it waited for such a mapping to end.
  void give_back_left(Address address);

 private:
  ArenaState& arena_;
  ChildMemory& children_;
  std::atomic<SegmentSink*> sink_{nullptr};
};

}  // namespace pinion
