#include "lease/pinned_count.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace pinion {

void PinnedCount::open() { file_ = KeptText("/proc/self/status"); }

std::uint64_t PinnedCount::read() const {
  char text[8192];
  file_.read(text);
  std::uint64_t kib = 0;
  for (const char* name : {"\nVmPin:", "\nVmLck:"})
    if (const char* line = std::strstr(text, name))
      kib += std::strtoull(line + std::strlen(name), nullptr, 10);
  return kib * 1024;
}

void PinnedPeak::sample(Time now, std::size_t registered) {
  last_sample_ = now;
  sampled_at_bytes_ = std::max(sampled_at_bytes_, registered);
  const std::uint64_t pinned = count_.read();
  if (pinned > at_start_) peak_ = std::max(peak_, pinned - at_start_);
}

void PinnedPeak::sample_growth(Time now, std::size_t registered) {
  constexpr Duration kSampleEvery = 50 * kMillisecond;
  if (registered > sampled_at_bytes_ && now - last_sample_ >= kSampleEvery) sample(now, registered);
}

std::uint64_t PinnedPeak::finish() {
  const std::uint64_t pinned = count_.read();
  count_.close();
  return pinned > at_start_ ? pinned - at_start_ : 0;
}

}  // namespace pinion
