#include "bench/physical_extents.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

namespace pinion::cli {

std::optional<std::size_t> physical_extents(Range pages) {
  std::vector<std::uint64_t> entries(pages.pages());
  const std::size_t bytes = entries.size() * sizeof entries[0];
  const int file = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const ssize_t read =
      ::pread(file, entries.data(), bytes, static_cast<off_t>(pages.begin / page_size() * sizeof entries[0]));
  ::close(file);
  if (read != static_cast<ssize_t>(bytes)) return {};
  constexpr std::uint64_t kFrame = (std::uint64_t{1} << 55) - 1;
  std::size_t extents = 0;
  std::uint64_t before = 0;
  for (const std::uint64_t entry : entries) {
    const std::uint64_t frame = entry & kFrame;
    if (frame == 0) return {};
    if (frame != before + 1) ++extents;
    before = frame;
  }
  return extents;
}

}  // namespace pinion::cli
