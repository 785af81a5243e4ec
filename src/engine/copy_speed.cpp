#include "engine/copy_speed.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace pinion {

double measure_copy_speed() {
  constexpr std::size_t kBytes = std::size_t{4} << 20, kHugePage = std::size_t{2} << 20;
  constexpr std::size_t kMapped = 2 * kBytes + kHugePage;
  void* const memory = ::mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* const from = reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(memory) + kHugePage - 1) &
                                             ~(std::uintptr_t{kHugePage} - 1));
  char* const to = from + kBytes;
  // Huge pages, where there are some, are touched in a hundredth of the time.
  ::madvise(from, 2 * kBytes, MADV_HUGEPAGE);
  std::memset(from, 1, 2 * kBytes);
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
