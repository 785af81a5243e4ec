// Registered bytes over time. Meter: of the process (the sum over its domains): level, peak, integral,
// series. DomainMeter: level, peak and integral of one domain. Each is guarded by its own mutex; any ordinary
// thread may read. registered_changed() never comes from a hook.
#pragma once

#include <algorithm>

#include "base/coverage.h"
#include "base/mutex.h"
#include "registry/domain.h"
#include "runlog/series.h"

namespace pinion {

class Meter final : public RegisteredListener {
 public:
  void start(Time now) {
    const MutexLock lock(mutex_);
    series_.start(now);
    peak_regions_ = regions_;
  }
  void registered_changed(Time now, Time since, std::int64_t bytes, int regions) override {
    const MutexLock lock(mutex_);
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
    const MutexLock lock(mutex_);
    series_.advance(now);
    f(series_, regions_, peak_regions_);
  }

 private:
  Mutex mutex_;
  runlog::Series series_ GUARDED_BY(mutex_);
  std::int64_t bytes_ GUARDED_BY(mutex_) = 0;
  std::int64_t regions_ GUARDED_BY(mutex_) = 0, peak_regions_ GUARDED_BY(mutex_) = 0;
};

class DomainMeter final : public RegisteredListener {
 public:
  explicit DomainMeter(Meter& process) : process_(process) {}

  struct Figures {
    std::uint64_t now, peak;
    double byte_ns;  ///< from start() to the reading
    /// The same of bytes that peers could reach by keys after the program's deregistration.
    double exposed_byte_ns;
    /// Registrations of the program with rights for peers, and their pages.
    std::uint64_t for_peers, pages_for_peers;
  };

  /// The domain is new.
  void start(Time now) {
    const MutexLock lock(mutex_);
    started_ = last_ = now;
    peak_ = level_;
    byte_ns_ = exposed_byte_ns_ = 0;
    for_peers_ = pages_for_peers_ = 0;
    programs_ = {};
  }
  /// The domain is opened again: its integral goes on.
  void restart() {
    const MutexLock lock(mutex_);
    peak_ = level_;
  }

  void registered_changed(Time now, Time since, std::int64_t bytes, int regions) override {
    {
      const MutexLock lock(mutex_);
      advance(now);
      level_ += bytes;
      peak_ = std::max(peak_, level_);
      const Time counted = std::max(since, started_);
      if (counted < now) byte_ns_ += static_cast<double>(bytes) * static_cast<double>(now - counted);
    }
    process_.registered_changed(now, since, bytes, regions);
  }

  // ---- of domains whose keys peers have: the registrations of the program, as it sees them ----

  /// Called before the program gets a key; and instead of program_deregisters(), where it gets none.
  void program_registers(Range pages, Time now);
  void program_was_refused(Range pages, Time now);
  void program_deregisters(Range pages, Time now);

  Figures read(Time now) {
    const MutexLock lock(mutex_);
    advance(now);
    return {static_cast<std::uint64_t>(level_),
            static_cast<std::uint64_t>(peak_),
            byte_ns_,
            exposed_byte_ns_,
            for_peers_,
            pages_for_peers_};
  }

 private:
  void advance(Time now) REQUIRES(mutex_) {
    if (now <= last_) return;
    const auto passed = static_cast<double>(now - last_);
    byte_ns_ += static_cast<double>(level_) * passed;
    const auto programs = static_cast<std::int64_t>(programs_.bytes());
    if (for_peers_ != 0 && level_ > programs)
      exposed_byte_ns_ += static_cast<double>(level_ - programs) * passed;
    last_ = now;
  }
  void count_programs(Range pages, bool more) REQUIRES(mutex_);

  Meter& process_;
  Mutex mutex_;
  std::int64_t level_ GUARDED_BY(mutex_) = 0, peak_ GUARDED_BY(mutex_) = 0;
  Time started_ GUARDED_BY(mutex_) = 0, last_ GUARDED_BY(mutex_) = 0;
  double byte_ns_ GUARDED_BY(mutex_) = 0, exposed_byte_ns_ GUARDED_BY(mutex_) = 0;
  Coverage programs_ GUARDED_BY(mutex_);  ///< pages that the program has registered for peers
  std::uint64_t for_peers_ GUARDED_BY(mutex_) = 0, pages_for_peers_ GUARDED_BY(mutex_) = 0;
};

}  // namespace pinion
