// The world around a domain, as its parts see it: the device, the budget of the process, the brackets of
// memory events, the clock, the listener. Plain data that Domain owns; device and budget change under its
// slow lock, while the domain is empty.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "device/device.h"
#include "monitor/brackets.h"
#include "registry/budget.h"

namespace pinion {

/// Follows how much a domain has registered; called under the domain's slow lock.
class RegisteredListener {
 public:
  virtual ~RegisteredListener() = default;
  /// Bytes and regions count from `since`, the begin of their device call, which has succeeded by `now`.
  virtual void registered_changed(Time now, Time since, std::int64_t bytes, int regions) = 0;
};

/// Times that threads learn that wait for registrations. Any thread, without a lock.
struct RegistrationTimes {
  /// The time that registrations took longer, in all, because the kernel ran something else meanwhile. The
  /// loss of a device call is added before its commit, so that waiting threads find it.
  std::atomic<Duration> preempted{0};
  /// The end of the latest registration, by the kernel's clock: the threads that wait for it could go on.
  std::atomic<Time> transition_ended{0};
};

struct DomainContext {
  Device* device;
  Budget* budget;
  const Brackets& brackets;
  Clock& clock;
  RegisteredListener* const listener;
  RegistrationTimes times{};
};

}  // namespace pinion
