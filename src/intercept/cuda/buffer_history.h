// How often each large buffer was copied, since its memory last changed: registration pays only where a
// buffer is used again and again. Fresh memory at an old address is a new buffer.
//
// Owns a table of fixed size; a new buffer takes the place of another one, whose uses are then counted anew.
// used(): any thread, outside of hooks. The sink's functions: hooks. Lock-free; counts that race are lost,
// which costs speed alone.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/range.h"
#include "monitor/memory_sink.h"

namespace pinion::cuda {

class BufferHistory final : public MemorySink {
 public:
  /// Counts a use of exactly this range that found no registration. True: it should be registered now. That
  /// is after three uses, and after twice as many each time that its registration has gone since.
  bool used(Range range);
  /// Notes that it is registered.
  void registered(Range range);

  Answer changing(const MemoryChange& change) override;
  void appeared(const NewMapping& mapping) override { forget(mapping.range); }

 private:
  struct Slot {
    std::atomic<Address> begin{0}, end{0};  ///< end 0: free
    std::atomic<unsigned> uses{0}, registered_at{0};
  };

  void forget(Range range);
  Slot& slot_of(Range range);

  std::array<Slot, 256> slots_;
};

}  // namespace pinion::cuda
