#include "device/cap_use.h"

#include "base/assert.h"
#include "base/units.h"

namespace pinion {

Error CapUse::take(std::size_t bytes) {
  const MutexLock lock(mutex_);
  if (caps_.max_region_bytes != 0 && bytes > caps_.max_region_bytes) {
    return Error::make(ENOSPC, "%s: a region of %s is above max_region_bytes (%s); register it in parts",
                       owner_.c_str(), format_size(bytes).c_str(),
                       format_size(caps_.max_region_bytes).c_str());
  }
  if (caps_.max_regions != 0 && regions_ >= caps_.max_regions) {
    return Error::make(ENOSPC, "%s: max_regions (%zu) are registered; let idle ones go (--limit-regions)",
                       owner_.c_str(), caps_.max_regions);
  }
  if (caps_.max_bytes != 0 && bytes > caps_.max_bytes - bytes_) {
    return Error::make(
        ENOSPC, "%s: %s more is above max_bytes (%s, of which %s are registered); let idle ones go (--limit)",
        owner_.c_str(), format_size(bytes).c_str(), format_size(caps_.max_bytes).c_str(),
        format_size(bytes_).c_str());
  }
  ++regions_;
  bytes_ += bytes;
  return {};
}

void CapUse::give(std::size_t bytes) {
  const MutexLock lock(mutex_);
  PINION_ASSERT(regions_ > 0 && bytes_ >= bytes);
  --regions_;
  bytes_ -= bytes;
}

std::size_t CapUse::regions() const {
  const MutexLock lock(mutex_);
  return regions_;
}

std::size_t CapUse::bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace pinion
