#include "retention/helper_share.h"

#include <algorithm>
#include <cmath>

namespace pinion {

namespace {
// The part of the share that pays for looks.
constexpr double kLooks = 0.25;
// A rest lasts until so much of the share is free again.
constexpr double kEnough = 0.1;
constexpr double kPrice = 4;
// Two wake-ups come with a region that goes and comes.
constexpr Duration kWakes = 10 * kMicrosecond;
constexpr Duration kLongestSleep = 250 * kMillisecond;
}  // namespace

void HelperShare::used(Duration cpu, Duration set_aside, bool only_looked, Time now) {
  const Duration more = std::max<Duration>(cpu - cpu_, 0);
  const Duration passed = std::max<Duration>(now - now_, 0);
  cpu_ += more;
  now_ += passed;
  if (only_looked) look_ += (static_cast<double>(more) - look_) / 16;
  set_aside_ = lost(set_aside);
  if (!settings_.core_idle) {
    busy_ += passed;
    spent_ += lost(more);
  }
  if (!binds())
    resting_ = false;
  else if (left() <= 0)
    resting_ = true;
  else if (left() >= kEnough * static_cast<double>(allowed()))
    resting_ = false;
}

Duration HelperShare::allowed() const {
  if (settings_.share < 0) return 0;
  const Duration credit =
      std::max(kLeastCredit, static_cast<Duration>(kCreditOfOnce * static_cast<double>(once_)));
  return credit + static_cast<Duration>(settings_.share * static_cast<double>(busy_) + for_threads_);
}

double HelperShare::left() const { return static_cast<double>(allowed()) - spent_ - set_aside_; }

bool HelperShare::affords(Duration work, double freed) const {
  if (!binds()) return true;
  const double costs = lost(work + kWakes), rest = left();
  if (costs > rest) return false;
  const double used = 1 - rest / static_cast<double>(allowed());
  // Nine tenths used: a second of work must save three of holding everything; towards the end, any number.
  const double price = kPrice * std::pow(used, 24) / (1 - used);
  return freed * static_cast<double>(kSecond) >= price * costs;
}

Duration HelperShare::least_sleep() const {
  if (!binds()) return 0;
  if (resting_ || settings_.share == 0) return kLongestSleep;
  const double every = lost(static_cast<Duration>(look_)) / (kLooks * settings_.share);
  return static_cast<Duration>(std::min(every, static_cast<double>(kLongestSleep)));
}

}  // namespace pinion
