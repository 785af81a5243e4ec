// Registered bytes over time. Meter: of the process (the sum over its domains): level, peak, integral,
// series; guarded by its own mutex. DomainMeter: level and peak of one domain; written under that domain's
// slow lock, read by anybody. registered_changed() never comes from a hook.
#pragma once

#include <algorithm>
#include <atomic>
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
  void registered_changed(Time now, Time since, std::int64_t bytes, int regions) override {
    std::lock_guard lock(mutex_);
    bytes_ += bytes;
    regions_ += regions;
    peak_regions_ = std::max(peak_regions_, regions_);
    series_.step(now, static_cast<std::uint64_t>(bytes_));
    const Time counted = std::max(since, series_.started());
    if (counted < now) series_.credit(static_cast<double>(bytes) * static_cast<double>(now - counted));
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

class DomainMeter final : public RegisteredListener {
 public:
  explicit DomainMeter(Meter& process) : process_(process) {}

  void registered_changed(Time now, Time since, std::int64_t bytes, int regions) override {
    const std::int64_t level = level_.load(std::memory_order_relaxed) + bytes;
    level_.store(level, std::memory_order_relaxed);
    if (level > peak_.load(std::memory_order_relaxed)) peak_.store(level, std::memory_order_relaxed);
    process_.registered_changed(now, since, bytes, regions);
  }
  /// While nothing happens in the domain.
  void restart() { peak_.store(level_.load(std::memory_order_relaxed), std::memory_order_relaxed); }

  std::uint64_t peak() const { return static_cast<std::uint64_t>(peak_.load(std::memory_order_relaxed)); }

 private:
  Meter& process_;
  std::atomic<std::int64_t> level_{0}, peak_{0};
};

}  // namespace pinion
