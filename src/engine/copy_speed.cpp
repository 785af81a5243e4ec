#include "engine/copy_speed.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/range.h"

namespace pinion {

double measure_copy_speed() {
  // Both together are larger than a core's own cache.
  constexpr std::size_t kBytes = std::size_t{2} << 20, kHugePage = std::size_t{2} << 20;
  constexpr std::size_t kMapped = 2 * kBytes + kHugePage;
  void* const memory = ::mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* const from = reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(memory) + kHugePage - 1) &
                                             ~(std::uintptr_t{kHugePage} - 1));
  char* const to = from + kBytes;
  // Huge pages, where there are some, are touched in a hundredth of the time. The first copy touches `to`.
  ::madvise(from, 2 * kBytes, MADV_HUGEPAGE);
  for (std::size_t i = 0; i < kBytes; i += page_size()) from[i] = 1;
  Ticks best = ~Ticks{0};
  for (int i = 0; i < 3; ++i) {
    const Ticks begin = ticks_now();
    std::memcpy(to, from, kBytes);
    asm volatile("" : : "r"(to) : "memory");
    best = std::min(best, ticks_now() - begin);
  }
  ::munmap(memory, kMapped);
  return static_cast<double>(kBytes) /
         static_cast<double>(std::max<Duration>(1, calibration().to_duration(best)));
}

}  // namespace pinion
