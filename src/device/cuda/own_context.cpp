#include "device/cuda/own_context.h"

#include "base/warning.h"

namespace pinion::cuda {

namespace {

double in_gib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

Error OwnContext::make() {
  if (context_.load(std::memory_order_acquire) != nullptr) return {};
  const MutexLock lock(mutex_);
  if (failed_ || context_.load(std::memory_order_relaxed) != nullptr) return failed_;
  context_.store(create(failed_), std::memory_order_release);
  if (failed_) warn("%s; copies are staged", failed_.message);
  return failed_;
}

Context OwnContext::create(Error& error) const {
  const RelaxedCapture relaxed(driver_);
  std::size_t free = 0;
  if (const Result refused = ask_free_memory(free)) {
    error = Error::make(ENODEV, "CUDA registers no host memory: error %d in the program's context", refused);
    return nullptr;
  }
  if (free < kLeastFree) {
    error = Error::make(ENODEV, "CUDA registers no host memory: of GPU %d %.1f GiB are free, %.0f are needed",
                        device_, in_gib(free), in_gib(kLeastFree));
    return nullptr;
  }
  Context made = nullptr;
  if (const Result refused = driver_.context_create(&made, 0, device_)) {
    error = Error::make(ENODEV, "CUDA registers no host memory: no second context on GPU %d, error %d",
                        device_, refused);
    return nullptr;
  }
  Context popped = nullptr;
  driver_.context_pop(&popped);  // the driver has made it current
  return made;
}

Result OwnContext::ask_free_memory(std::size_t& free) const {
  if (const Result refused = driver_.context_push(program_)) return refused;
  std::size_t total = 0;
  const Result result = driver_.memory_info(&free, &total);
  Context popped = nullptr;
  driver_.context_pop(&popped);
  return result;
}

void OwnContext::abandon_after_fork() {
  mutex_.free_in_child();
  context_.store(nullptr, std::memory_order_relaxed);
  failed_ = Error::make(ENODEV, "a forked child cannot register with its parent's GPU");
}

}  // namespace pinion::cuda
