#include "placement/static_data.h"

#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/held_signals.h"
#include "base/loaded_objects.h"
#include "monitor/memory_events.h"
#include "placement/kernel_pages.h"

namespace pinion {

namespace {

/// Ranges of one kind, in all objects.
struct Found {
  std::array<Range, 64> ranges;
  std::size_t count = 0;

  /// The whole hugepages in it.
  void add(Address begin, Address end) {
    const Range whole{(begin + kHugepage - 1) & ~(kHugepage - 1), end & ~(kHugepage - 1)};
    if (!whole.empty() && count < ranges.size()) ranges[count++] = whole;
  }
};

struct Segments {
  Found data, bss;
};

Found g_placed;

/// The segments that are writable once the dynamic linker has done its work, and hold no code.
int find_segments(dl_phdr_info* object, std::size_t, void* out) {
  auto& found = *static_cast<Segments*>(out);
  Address protected_end = 0;
  const auto visit_all = [&](auto visit) {
    for (std::size_t i = 0; i < object->dlpi_phnum; ++i) visit(object->dlpi_phdr[i]);
  };
  visit_all([&](const ElfW(Phdr) & header) {
    if (header.p_type == PT_GNU_RELRO)
      protected_end = page_ceil(object->dlpi_addr + header.p_vaddr + header.p_memsz);
  });
  visit_all([&](const ElfW(Phdr) & header) {
    if (header.p_type != PT_LOAD || (header.p_flags & (PF_W | PF_X)) != PF_W) return;
    const Address begin = object->dlpi_addr + header.p_vaddr, file_end = begin + header.p_filesz;
    const bool holds_protected = begin < protected_end && protected_end <= begin + header.p_memsz;
    found.data.add(holds_protected ? protected_end : begin, page_floor(file_end));
    found.bss.add(page_ceil(std::max(file_end, holds_protected ? protected_end : begin)),
                  page_ceil(begin + header.p_memsz));
  });
  return 0;
}

bool is_single_threaded() {
  struct stat tasks {};
  return ::stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 3;  // itself, its parent, one thread
}

/// Its contents move to hugepages, which take its place.
bool replace(Range data) {
  const Pages pages = map_private(data.bytes());
  if (pages.backing != Backing::transparent) {
    unmap_unseen(pages.range);
    return false;
  }
  const HeldSignals held;  // a handler might write to it
  std::memcpy(reinterpret_cast<void*>(pages.range.begin), reinterpret_cast<void*>(data.begin), data.bytes());
  memory_events::begin({data});
  const bool moved = move_unseen(pages.range, data);
  memory_events::end(data);
  if (!moved) unmap_unseen(pages.range);
  return moved;
}

}  // namespace

void place_static_data() {
  Segments found;
  own_dl_iterate_phdr()(find_segments, &found);
  const auto placed = [](Range range) { g_placed.add(range.begin, range.end); };
  for (std::size_t i = 0; i < found.bss.count; ++i)
    if (advise_hugepages(found.bss.ranges[i])) placed(found.bss.ranges[i]);
  for (std::size_t i = 0; i < found.data.count && is_single_threaded(); ++i)
    if (replace(found.data.ranges[i])) placed(found.data.ranges[i]);
}

StaticData static_data() {
  StaticData sum;
  for (std::size_t i = 0; i < g_placed.count; ++i) sum.placed_bytes += g_placed.ranges[i].bytes();
  sum.hugepage_bytes = transparent_bytes(g_placed.ranges.data(), g_placed.count);
  return sum;
}

}  // namespace pinion
