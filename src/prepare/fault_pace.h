// The pace at which a thread faults memory in beside a program that maps and unmaps. A fault by the kernel's
// populating call holds the process's memory map for reading, so each call is short: some 30 us. Before each,
// the thread gives way to calls of the program that change the map. Where the hooks do not see those calls,
// all such threads pause at the same moments instead, as a waiting call needs a moment without any reader.
// Where others want its core, a thread also sleeps often: the kernel would take the core from it in the midst
// of a call, with the map held, for milliseconds.
//
// Belongs to one thread; ordinary code, which blocks.
#pragma once

#include <cstddef>

#include "base/clock.h"
#include "base/error.h"
#include "base/range.h"
#include "monitor/map_changes.h"

namespace pinion {

class FaultPace {
 public:
  /// `pauses`: whether it pauses where the hooks do not see the program's calls.
  explicit FaultPace(bool pauses = true) : pauses_(pauses) {}

  /// Makes the absent pages present, like fault_in() of device/kernel/fault_in.h.
  Error fault_in(Range pages, bool for_writing);

 private:
  static constexpr std::size_t kLeastStep = std::size_t{64} << 10;
  static constexpr std::size_t kMostStep = std::size_t{2} << 20;
  static constexpr Duration kLongStep = 40 * kMicrosecond;
  /// Longest wait for a call. Then the thread goes on for kInsist: the call may be waiting for something
  /// else.
  static constexpr Duration kPatience = 300 * kMicrosecond;
  static constexpr Duration kInsist = 2 * kMillisecond;
  /// A pause begins with each multiple of kPeriod.
  static constexpr Duration kPeriod = 300 * kMicrosecond;
  static constexpr Duration kPause = 60 * kMicrosecond;

  /// A step that took this long lost its core. From then on the thread sleeps after each kRun, for kCrowded.
  static constexpr Duration kLostCore = kMillisecond;
  static constexpr Duration kCrowded = 50 * kMillisecond;
  static constexpr Duration kRun = 200 * kMicrosecond;

  std::size_t next_step();
  void learn(Time now);
  Time rest(Time now);
  Time give_way(Time now);
  Time pause(Time now);

  const bool pauses_;
  const MapChanges::Watch watch_;
  std::size_t step_ = kLeastStep;
  Time step_began_ = 0;  ///< 0: no step of this call yet
  Time insists_until_ = 0;
  Time crowded_until_ = 0, rested_ = 0;
  Time next_pause_ = 0;
};

}  // namespace pinion
