// Segments of the arena that are registered before a request needs them. The heap tells of each segment that
// gets its first block. After a moment, in which more blocks may come, what the heap does not use is cut off;
// a preparation (preparation.h) then makes the rest present, and the helper registers it. A request that
// comes earlier registers the segment itself (lease.h).
//
// One domain is served: the first open one that registers. Where its device gives peers keys, segments have
// to serve peers too, else the first request for peers would close them. Under a limit, segments are prepared
// as far as there is room. After a refusal of the device, no more are.
//
// wanted() and is_rung(): any thread, which may hold a mutex of the heap or of the domain table. begin(): the
// engine, before its helper starts. All else: the helper. Never freed (placement/device_segments.h).
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "lease/bell.h"
#include "lease/lease.h"
#include "placement/hugepage_heap.h"
#include "prepare/preparation.h"

namespace pinion {

class SegmentPreparation final : public SegmentSink {
 public:
  SegmentPreparation(HugepageHeap& heap, Arena& arena, LeasePath& leases, HelperBell& bell, bool wanted)
      : heap_(heap), arena_(arena), leases_(leases), bell_(bell), on_(wanted && !arena.range().empty()) {}

  /// Takes note of a segment, or of a new domain.
  void wanted() override {
    rung_.store(true, std::memory_order_release);
    bell_.wake();
  }
  bool is_rung() const { return rung_.load(std::memory_order_acquire); }

  void begin() {
    if (on_) arena_.devices().tell(this);
  }
  /// Does what is due. Returns when to call again; kNever: when it is rung.
  Time attend(Time now);
  void end();

 private:
  std::optional<int> domain() const;
  void prepare_next(int domain);
  bool has_room(Range segment) const;
  bool register_present(int domain);

  HugepageHeap& heap_;
  Arena& arena_;
  LeasePath& leases_;
  HelperBell& bell_;
  std::atomic<bool> rung_{true};
  bool on_;            ///< false: no arena, or it is not wanted, or the device has refused
  Time due_ = kNever;  ///< then the wanted segments are looked at; kNever: there are none
  Range segment_;      ///< being made present
  std::unique_ptr<Preparation> work_;
};

}  // namespace pinion
