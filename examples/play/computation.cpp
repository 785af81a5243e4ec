#include "computation.h"

#include <time.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace play {

namespace {

/// Each turn needs the result of the one before, so that a turn takes its full latency.
[[gnu::noinline]] void loop(std::uint64_t turns) {
  std::uint64_t value = turns;
  for (std::uint64_t i = 0; i < turns; ++i) {
    value = value * 6364136223846793005u + 1442695040888963407u;
    asm volatile("" : "+r"(value));
  }
}

}  // namespace

void Computation::run(pinion::Duration time) const {
  if (kind_ == Kind::loop) return loop(static_cast<std::uint64_t>(static_cast<double>(time) * loops_per_ns_));
  timespec left{time / pinion::kSecond, time % pinion::kSecond};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

double Computation::measured_loops_per_second() {
  constexpr std::uint64_t kTurns = 200'000;
  constexpr int kBatches = 200;
  pinion::Duration best = std::numeric_limits<pinion::Duration>::max();
  for (int batch = 0; batch < kBatches; ++batch) {
    const pinion::Time begin = pinion::monotonic_now();
    loop(kTurns);
    best = std::min(best, pinion::monotonic_now() - begin);
  }
  return static_cast<double>(kTurns) * 1e9 / static_cast<double>(best);
}

}  // namespace play
