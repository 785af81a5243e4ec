// Registered bytes of the process over time (the sum over its domains): level, peak, integral, series.
// Guarded by its own mutex; registered_changed() comes under a domain's slow lock, never from a hook.
#pragma once

#include <algorithm>
#include <mutex>

#include "registry/domain.h"
#include "runlog/series.h"

namespace pinion {

class Meter final : public RegisteredListener {
 public:
  void start(Time now) {
    std::lock_guard lock(mutex_);
    series_.start(now);
    peak_regions_ = regions_;
  }
  void registered_changed(Time now, std::int64_t bytes, int regions) override {
    std::lock_guard lock(mutex_);
    bytes_ += bytes;
    regions_ += regions;
    peak_regions_ = std::max(peak_regions_, regions_);
    series_.step(now, static_cast<std::uint64_t>(bytes_));
  }
  /// Calls f(series brought up to now, regions, peak of regions).
  template <class F>
  void read(Time now, F&& f) {
    std::lock_guard lock(mutex_);
    series_.advance(now);
    f(series_, regions_, peak_regions_);
  }

 private:
  std::mutex mutex_;
  runlog::Series series_;
  std::int64_t bytes_ = 0;
  std::int64_t regions_ = 0, peak_regions_ = 0;
};

}  // namespace pinion
