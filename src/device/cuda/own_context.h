// A CUDA context of Pinion's own, beside the program's: what is registered in it neither waits for the
// program's work nor stops it (evidence-gpu.md). It is made at the first use, if the GPU has memory to
// spare; it is never destroyed. The program's contexts are not kept: each may end at any time.
//
// Owns the context. Any thread, outside of hooks; one mutex, held while the context is made.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/error.h"
#include "base/mutex.h"
#include "device/cuda/driver_api.h"

namespace pinion::cuda {

class OwnContext {
 public:
  /// A context takes half a GiB of GPU memory; it is made where the program has many times that left.
  static constexpr std::size_t kLeastFree = std::size_t{8} << 30;

  OwnContext(const Driver& driver, Ordinal device) : driver_(driver), device_(device) {}

  /// Notes how much memory the GPU has left, by the calling thread's current context. False: that context
  /// is on another GPU, or does not say.
  [[nodiscard]] bool look();
  /// Makes the context, unless it is there. ENODEV: there is none. After a look() there will be none, and the
  /// first such answer is a message to the user.
  Error make();
  /// Whether make() has succeeded.
  bool ready() const { return context_.load(std::memory_order_acquire) != nullptr; }
  /// Runs `call` with the context current in the calling thread, and captures relaxed. make() has succeeded.
  template <class Call>
  Result run(Call&& call) {
    const RelaxedCapture relaxed(driver_);
    if (const Result refused = driver_.context_push(context_.load(std::memory_order_acquire))) return refused;
    const Result result = call();
    Context popped = nullptr;
    driver_.context_pop(&popped);
    return result;
  }
  /// In a forked child, which CUDA does not serve.
  void abandon_after_fork() NO_THREAD_SAFETY_ANALYSIS;

 private:
  /// Makes it; the driver's refusal, or a shortage, in `error`.
  Context create(Error& error) const;
  const Driver& driver_;
  const Ordinal device_;
  static constexpr std::size_t kUnknown = ~std::size_t{0};
  std::atomic<std::size_t> free_{kUnknown};  ///< as look() has found it
  std::atomic<Context> context_{nullptr};
  Mutex mutex_;
  Error failed_ GUARDED_BY(mutex_);  ///< why there is none
};

}  // namespace pinion::cuda
