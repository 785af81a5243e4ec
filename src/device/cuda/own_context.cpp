#include "device/cuda/own_context.h"

#include "base/warning.h"

namespace pinion::cuda {

namespace {

double in_gib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

Error OwnContext::make() {
  if (context_.load(std::memory_order_acquire) != nullptr) return {};
  if (free_.load(std::memory_order_relaxed) == kUnknown)
    return Error::make(ENODEV, "no copy has been worth a second context on GPU %d", device_);
  const MutexLock lock(mutex_);
  if (failed_ || context_.load(std::memory_order_relaxed) != nullptr) return failed_;
  context_.store(create(failed_), std::memory_order_release);
  if (failed_) warn("%s; copies are staged", failed_.message);
  return failed_;
}

Context OwnContext::create(Error& error) const {
  const std::size_t free = free_.load(std::memory_order_relaxed);
  if (free < kLeastFree) {
    error = Error::make(ENODEV, "CUDA registers no host memory: of GPU %d %.1f GiB are free, %.0f are needed",
                        device_, in_gib(free), in_gib(kLeastFree));
    return nullptr;
  }
  const RelaxedCapture relaxed(driver_);
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

bool OwnContext::look() {
  const RelaxedCapture relaxed(driver_);
  Ordinal device = -1;
  std::size_t free = 0, total = 0;
  if (driver_.context_device(&device) != kSuccess || device != device_ ||
      driver_.memory_info(&free, &total) != kSuccess)
    return false;
  free_.store(free, std::memory_order_relaxed);
  return true;
}

void OwnContext::abandon_after_fork() {
  mutex_.free_in_child();
  context_.store(nullptr, std::memory_order_relaxed);
  failed_ = Error::make(ENODEV, "a forked child cannot register with its parent's GPU");
}

}  // namespace pinion::cuda
