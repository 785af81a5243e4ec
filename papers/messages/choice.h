// Chooses the protocol of a buffer, by its size, by the state of its registration, and by whether its use can
// be foreseen. Owns the short memory of recent buffers, behind a lock of its own. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/mutex.h"
#include "papers/messages/buffer.h"

namespace pinion::transfer {

/// Buffers used lately, and how often in a row each was found unregistered. Retention registers the
/// buffers ahead that it foresees, so these misses measure predictability. Two buffers of one place forget
/// each other.
class RecentBuffers {
 public:
  /// Counts a miss. Returns the misses in a row before this one; -1: the buffer is new.
  int missed(const void* address, std::size_t bytes);
  void found(const void* address, std::size_t bytes);

 private:
  struct Entry {
    const void* address = nullptr;
    std::size_t bytes = 0;
    int misses = 0;
  };
  Entry& entry_of(const void* address, std::size_t bytes) REQUIRES(mutex_);

  Mutex mutex_;
  std::array<Entry, 256> entries_ GUARDED_BY(mutex_);
};

/// A buffer that was found unregistered this often in a row is not foreseen.
constexpr int kMostMisses = 4;

/// Sets the buffer's protocol; a lease that this took is the part at hand.
void choose(Buffer& buffer, RecentBuffers& recent);

/// The size from which registering a buffer takes less time than copying it, on this domain.
std::size_t measure_bounce_below(pinion_domain* domain, std::size_t at_most);

}  // namespace pinion::transfer
