#include "device/model/model.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace pinion {

ModelDevice::ModelDevice(CostModel nic, VirtualClock* clock)
    : nic_(std::move(nic)), clock_(clock), use_("NIC '" + nic_.name + "'", nic_.caps) {}

void ModelDevice::fail_every(std::uint64_t k, int code) {
  fail_every_ = k;
  fail_code_ = code;
}

void ModelDevice::during_registration(std::function<void(Range)> f) { during_ = std::move(f); }

std::string ModelDevice::description() const {
  return "pins nothing; costs virtual time as modelled for NIC '" + nic_.name + "'";
}

DeviceCapabilities ModelDevice::capabilities() const {
  DeviceCapabilities capabilities;
  capabilities.caps = nic_.caps;
  capabilities.byte_ranges = nic_.byte_ranges;
  return capabilities;
}

Registration ModelDevice::register_range(Range pages, Access access, Actor) {
  {
    const MutexLock lock(mutex_);
    ++attempts_;
    if (fail_every_ != 0 && attempts_ % fail_every_ == 0) {
      return {Error::make(fail_code_, "registration %llu fails on purpose",
                          static_cast<unsigned long long>(attempts_)),
              {},
              {}};
    }
  }
  if (Error error = use_.take(pages.bytes())) return {error, {}, {}};
  if (during_) during_(pages);
  const MutexLock lock(mutex_);
  const std::size_t entries = entries_ ? entries_(pages) : pages.pages();
  if (clock_) clock_->advance(nic_.register_cost(entries));
  const std::uint64_t handle = ++registered_;
  live_.emplace(handle, Live{pages, entries});
  RegistrationKey key;
  key.handle = handle;
  key.lkey = static_cast<std::uint32_t>(handle);
  key.remote_key = key.lkey;
  return {{}, key, access, entries_ ? entries : 0};
}

Error ModelDevice::deregister(const RegistrationKey& key, Actor) {
  const MutexLock lock(mutex_);
  const auto found = live_.find(key.handle);
  if (found == live_.end()) {
    assert(key.handle <= abandoned_ && "deregistration of a key that is not registered");
    return {};
  }
  if (clock_) clock_->advance(nic_.deregister_cost(found->second.entries));
  use_.give(found->second.range.bytes());
  live_.erase(found);
  ++deregistered_;
  return {};
}

/// The child's only thread needs no lock, which a thread of the parent's may hold.
void ModelDevice::abandon_after_fork() NO_THREAD_SAFETY_ANALYSIS {
  for (const auto& [handle, live] : live_) use_.give(live.range.bytes());
  live_.clear();
  abandoned_ = registered_;
}

bool ModelDevice::is_live(const RegistrationKey& key) const {
  const MutexLock lock(mutex_);
  return live_.count(key.handle) != 0;
}

bool ModelDevice::overlaps_live(Range range) const {
  const MutexLock lock(mutex_);
  return std::any_of(live_.begin(), live_.end(),
                     [&](const auto& entry) { return entry.second.range.overlaps(range); });
}

std::uint64_t ModelDevice::registrations() const {
  const MutexLock lock(mutex_);
  return registered_;
}

std::uint64_t ModelDevice::deregistrations() const {
  const MutexLock lock(mutex_);
  return deregistered_;
}

}  // namespace pinion
