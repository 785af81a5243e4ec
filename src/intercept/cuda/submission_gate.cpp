#include "intercept/cuda/submission_gate.h"

#include <time.h>

#include <climits>
#include <type_traits>

#include "base/futex.h"

namespace pinion::cuda {

namespace {

/// An entry that stays longer waits for its stream, and would hold the copy up.
constexpr Duration kPatience = 500 * kMicrosecond;
constexpr unsigned kTurnsOfSpinning = 256;

// Threads may submit while the process exits.
static_assert(std::is_trivially_destructible_v<SubmissionGate>);

}  // namespace

void SleepingAtomics::sleep(Atomic<std::uint32_t>& word, std::uint32_t value) {
  futex_wait(word, value, kNever);
}

void SleepingAtomics::wake(Atomic<std::uint32_t>& word) { futex_wake(word, INT_MAX); }

bool SleepingAtomics::Patience::wait() {
  if (turns_++ < kTurnsOfSpinning) {
    relax();
    return true;
  }
  const Time now = monotonic_now();
  if (until_ == 0) until_ = now + kPatience;
  if (now >= until_) return false;
  const timespec pause{0, 10 * kMicrosecond};
  ::nanosleep(&pause, nullptr);
  return true;
}

constinit SubmissionGate g_submission_gate;

}  // namespace pinion::cuda
