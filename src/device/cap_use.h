// The use of a device's caps, and the refusal that names the cap. Any thread; one short mutex.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "device/device.h"

namespace pinion {

class CapUse {
 public:
  /// `owner` names whose caps these are, for errors.
  CapUse(std::string owner, DeviceCaps caps) : owner_(std::move(owner)), caps_(caps) {}

  /// Counts one region, or returns the cap that forbids it (ENOSPC).
  Error take(std::size_t bytes);
  void give(std::size_t bytes);

  std::size_t regions() const;
  std::size_t bytes() const;

 private:
  const std::string owner_;
  const DeviceCaps caps_;
  mutable Mutex mutex_;
  std::size_t regions_ GUARDED_BY(mutex_) = 0;
  std::size_t bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace pinion
