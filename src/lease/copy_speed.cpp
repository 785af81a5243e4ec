#include "lease/copy_speed.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/plain_file.h"
#include "base/range.h"

namespace pinion {

namespace {

constexpr std::int64_t kKeptSeconds = 3600;

/// Whether the file was written within that time.
bool is_new(const struct stat& status) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const std::int64_t age = now.tv_sec - status.st_mtim.tv_sec;
  return age >= 0 && age < kKeptSeconds;
}

bool is_speed(double bytes_per_ns) { return bytes_per_ns > 1e-3 && bytes_per_ns < 1e4; }

/// The speed in the open file; 0: there is none to believe.
double kept_speed(int file) {
  struct stat status {};
  double speed = 0;
  if (::fstat(file, &status) != 0 || !is_new(status) ||
      ::pread(file, &speed, sizeof speed, 0) != sizeof speed || !is_speed(speed))
    return 0;
  return speed;
}

/// Does nothing where the file may not grow.
void keep_speed(int file, double speed) {
  if (file_size_limit() >= sizeof speed) static_cast<void>(!::pwrite(file, &speed, sizeof speed, 0));
}

}  // namespace

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

double known_copy_speed(const std::string& directory) {
  const int file = open_users_file(directory + "/pinion-copies-" + std::to_string(::geteuid()));
  double speed = kept_speed(file);
  if (speed == 0) {
    speed = measure_copy_speed();
    keep_speed(file, speed);
  }
  if (file >= 0) ::close(file);
  return speed;
}

}  // namespace pinion
