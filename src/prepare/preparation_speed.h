// How many threads prepare memory, and by which pieces they register it: measures their throughput for two
// searches (speed_search.h). Any thread; two short mutexes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/mutex.h"
#include "prepare/speed_search.h"

namespace pinion {

class PreparationSpeed {
 public:
  struct Bounds {
    unsigned first_threads, most_threads;
    std::size_t first_piece, most_piece;
  };

  PreparationSpeed(const Bounds& bounds, Time now)
      : end_(now + kWindow),
        threads_(bounds.first_threads, bounds.most_threads),
        began_(now),
        piece_(static_cast<double>(bounds.first_piece), static_cast<double>(bounds.most_piece)) {}

  unsigned threads() const {
    const MutexLock lock(mutex_);
    return threads_.threads();
  }

  /// Bytes that were faulted in or registered just now. Returns how many threads there should be from now on
  /// if a measurement is over.
  std::optional<unsigned> worked(std::size_t bytes, Time now) {
    const std::uint64_t all = work_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (now < end_.load(std::memory_order_relaxed) || !mutex_.try_lock()) return std::nullopt;
    const MutexLock lock(mutex_, std::adopt_lock);
    if (now < end_.load(std::memory_order_relaxed)) return std::nullopt;
    const unsigned threads =
        threads_.measured(static_cast<double>(all - before_) / static_cast<double>(now - began_));
    before_ = all;
    began_ = now;
    end_.store(now + kWindow, std::memory_order_relaxed);
    return threads;
  }

  /// One registration. Returns the bytes of the next ones.
  std::size_t registered(std::size_t bytes, Duration took) {
    const MutexLock lock(piece_mutex_);
    piece_.registered(static_cast<double>(bytes),
                      static_cast<double>(took) / static_cast<double>(kMillisecond));
    return static_cast<std::size_t>(piece_.bytes());
  }

 private:
  /// A thread faults in some 16 MiB meanwhile.
  static constexpr Duration kWindow = 12 * kMillisecond;

  std::atomic<std::uint64_t> work_{0};
  std::atomic<Time> end_;
  mutable Mutex mutex_;
  SpeedSearch threads_ GUARDED_BY(mutex_);
  Time began_ GUARDED_BY(mutex_);
  std::uint64_t before_ GUARDED_BY(mutex_) = 0;
  Mutex piece_mutex_;
  PieceSearch piece_ GUARDED_BY(piece_mutex_);
};

}  // namespace pinion
