// Wakes the agent, the job's thread for slow work. Any thread rings, hooks of memory events too: no lock, no
// allocation.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/futex.h"

namespace pinion::firehose {

class Bell {
 public:
  void ring() {
    rings_.fetch_add(1);
    futex_wake(rings_, 1);
  }

  // ---- the agent ----

  std::uint32_t rings() const { return rings_.load(); }
  /// Returns at `until`, or once it rings beyond `seen`.
  void wait(std::uint32_t seen, Time until) { futex_wait(rings_, seen, until); }

 private:
  std::atomic<std::uint32_t> rings_{0};
};

}  // namespace pinion::firehose
