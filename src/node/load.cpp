#include "node/load.h"

#include <cinttypes>
#include <cstdio>
#include <string>

namespace pinion::node {

namespace {

constexpr double kIdle = 0.5, kBusy = 0.2;  // cores
// A thread that finds an idle core runs within some ten microseconds.
constexpr Duration kWaits = 300 * kMicrosecond;

}  // namespace

bool core_idle(const LoadSample& sample, bool before) {
  // Cores that this thread's cpuset leaves out may be idle.
  if (sample.delay >= kWaits) return false;
  if (sample.idle_cores < 0) return before;
  if (sample.idle_cores >= kIdle) return true;
  return sample.idle_cores > kBusy && before;
}

void Load::open(pid_t thread) {
  uptime_ = KeptText("/proc/uptime");
  schedstat_ = KeptText("/proc/self/task/" + std::to_string(thread) + "/schedstat");
}

bool Load::core_idle(Time now, bool before) {
  char text[128];
  LoadSample sample;
  std::uint64_t whole = 0, hundredths = 0;  // the decimal point of sscanf is the program's locale's
  if (!uptime_.read(text).empty() &&
      std::sscanf(text, "%*u.%*u %" SCNu64 ".%2" SCNu64, &whole, &hundredths) == 2) {
    const double idle = static_cast<double>(whole) + static_cast<double>(hundredths) / 100;
    if (idle_seconds_ >= 0 && now > sampled_)
      sample.idle_cores = (idle - idle_seconds_) * kSecond / static_cast<double>(now - sampled_);
    idle_seconds_ = idle;
  }
  std::uint64_t ran = 0, delay = 0, turns = 0;
  if (!schedstat_.read(text).empty() &&
      std::sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &ran, &delay, &turns) == 3) {
    if (sampled_ != 0 && turns > turns_)
      sample.delay = static_cast<Duration>((delay - delay_ns_) / (turns - turns_));
    delay_ns_ = delay;
    turns_ = turns;
  }
  sampled_ = now;
  return node::core_idle(sample, before);
}

}  // namespace pinion::node
