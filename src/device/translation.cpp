#include "device/translation.h"

#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/types.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <fstream>

#include "device/kernel/mapped_pages.h"

namespace pinion {

namespace {

/// struct pm_scan_arg of <linux/fs.h> since 6.7, and its result.
struct PageScan {
  __u64 size;
  __u64 flags;
  __u64 begin;
  __u64 end;
  __u64 stopped_at;
  __u64 found;
  __u64 room_for_found;
  __u64 most_pages;
  __u64 inverted;
  __u64 all_of;
  __u64 any_of;
  __u64 shown;
};
struct FoundPages {
  __u64 begin;
  __u64 end;
  __u64 categories;
};
constexpr unsigned long kPageScan = _IOWR('f', 16, PageScan);
constexpr __u64 kIsHuge = __u64{1} << 6;

constexpr const char *kPagemap = "/proc/self/pagemap", *kMaps = "/proc/self/maps";

KeptFile opened(const char* path) { return KeptFile(::open(path, O_RDONLY | O_CLOEXEC)); }

/// The result of use(descriptor). The program may have closed the kept file.
template <class Use>
auto with_file(const KeptFile& kept, const char* path, Use&& use) {
  if (const int file = kept.get(); file >= 0) return use(file);
  return use(opened(path).get());
}

/// Searches for the first page outside of hugepages.
bool is_all_huge(Range range, const PageFiles& files) {
  FoundPages first{};
  PageScan scan{};
  scan.size = sizeof scan;
  scan.begin = range.begin;
  scan.end = range.end;
  scan.found = reinterpret_cast<std::uintptr_t>(&first);
  scan.room_for_found = scan.most_pages = 1;
  scan.inverted = scan.all_of = scan.shown = kIsHuge;
  return with_file(files.pagemap(), kPagemap, [&](int file) { return ::ioctl(file, kPageScan, &scan); }) == 0;
}

std::size_t transparent_page_size() {
  static const std::size_t size = [] {
    std::size_t bytes = 0;
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    return file >> bytes ? bytes : page_size();
  }();
  return size;
}

/// The size of the pages under `range`; the system's where they differ.
std::size_t size_of_pages(Range range, const PageFiles& files) {
  if (!is_all_huge(range, files)) return page_size();
  PagedMemory mapping;
  const bool known = with_file(files.maps(), kMaps, [&](int file) {  // since Linux 6.11
    return ask_for_mapping(file, range.begin, mapping);
  });
  if (!known || mapping.page_bytes == page_size()) return transparent_page_size();
  return range.end <= mapping.range.end ? mapping.page_bytes : page_size();
}

}  // namespace

void PageFiles::open() const {
  std::call_once(opened_, [this] {
    pagemap_ = opened(kPagemap);
    maps_ = opened(kMaps);
  });
}

const KeptFile& PageFiles::pagemap() const {
  open();
  return pagemap_;
}

const KeptFile& PageFiles::maps() const {
  open();
  return maps_;
}

std::size_t translation_entries(Range pages, std::uint64_t page_sizes) {
  return translation_entries(pages, page_sizes, PageFiles());
}

std::size_t translation_entries(Range pages, std::uint64_t page_sizes, const PageFiles& files) {
  if (pages.bytes() <= page_size()) return 1;
  const std::uint64_t at_most = 2 * std::uint64_t{size_of_pages(pages, files)} - 1;
  const std::size_t size = std::max<std::uint64_t>(std::bit_floor(page_sizes & at_most), page_size());
  return (pages.end - 1) / size - pages.begin / size + 1;
}

}  // namespace pinion
