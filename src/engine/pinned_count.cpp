#include "engine/pinned_count.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "base/own_files.h"

namespace pinion {

namespace {

constexpr const char* kStatus = "/proc/self/status";

std::uint64_t read_from(int status) {
  char text[8192];
  const ssize_t length = ::pread(status, text, sizeof text - 1, 0);
  if (length <= 0) return 0;
  text[length] = '\0';
  std::uint64_t kib = 0;
  for (const char* name : {"\nVmPin:", "\nVmLck:"})
    if (const char* line = std::strstr(text, name))
      kib += std::strtoull(line + std::strlen(name), nullptr, 10);
  return kib * 1024;
}

}  // namespace

void PinnedCount::open() { file_ = KeptFile(::open(kStatus, O_RDONLY | O_CLOEXEC)); }

std::uint64_t PinnedCount::read() const {
  if (const int status = file_.get(); status >= 0) return read_from(status);
  // The program has closed it.
  std::uint64_t bytes = 0;
  with_own_files([&] { bytes = read_from(::open(kStatus, O_RDONLY | O_CLOEXEC)); });
  return bytes;
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
