#include "device/kernel/mapped_hugepages.h"

#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/types.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "device/kernel/mapped_pages.h"
#include "monitor/own_process.h"

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

/// The result of use(descriptor). The program may have closed the kept file. One that the system refused is
/// not asked for again: a sandbox may end the process for it.
template <class Use>
auto with_file(const KeptFile& kept, const char* path, Use&& use) {
  if (!kept.is_open()) return use(-1);
  if (const int file = kept.get(); file >= 0) return use(file);
  return use(opened(path).get());
}

}  // namespace

std::size_t transparent_page_size() {
  static const std::size_t size =
      kernel_number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", page_size());
  return size;
}

const KeptFile& PageFiles::pagemap() const {
  std::call_once(pagemap_opened_, [this] { pagemap_ = opened(kPagemap); });
  return pagemap_;
}

const KeptFile& PageFiles::maps() const {
  std::call_once(maps_opened_, [this] { maps_ = opened(kMaps); });
  return maps_;
}

void PageFiles::abandon_after_fork() {
  pagemap_.close();
  maps_.close();
}

Address end_of_hugepages(Range range, const PageFiles& files) {
  FoundPages first{};
  PageScan scan{};
  scan.size = sizeof scan;
  scan.begin = range.begin;
  scan.end = range.end;
  scan.found = reinterpret_cast<std::uintptr_t>(&first);
  scan.room_for_found = scan.most_pages = 1;
  scan.inverted = scan.all_of = scan.shown = kIsHuge;
  const int found =
      with_file(files.pagemap(), kPagemap, [&](int file) { return ::ioctl(file, kPageScan, &scan); });
  if (found < 0) return range.begin;
  return found == 0 ? range.end : std::clamp<Address>(first.begin, range.begin, range.end);
}

std::size_t size_of_pages(Range range, const PageFiles& files) {
  if (end_of_hugepages(range, files) < range.end) return page_size();
  PagedMemory mapping;
  const bool known = with_file(files.maps(), kMaps, [&](int file) {  // since Linux 6.11
    return ask_for_mapping(file, range.begin, mapping);
  });
  if (!known || mapping.page_bytes == page_size()) return transparent_page_size();
  return range.end <= mapping.range.end ? mapping.page_bytes : page_size();
}

PageRuns::PageRuns(Range pages, const PageFiles& files) {
  if (pages.bytes() >= kAskedFrom && cut(pages, files)) return;
  huge_count_ = 0;
  ordinary_count_ = 1;
  ordinary_[0] = pages;
}

std::size_t PageRuns::count() const {
  std::size_t count = 0;
  for (const Range run : ordinary()) count += run.pages();
  const std::size_t unit = transparent_page_size();
  for (const Range run : in_hugepages()) count += (run.end - 1) / unit - run.begin / unit + 1;
  return count;
}

bool PageRuns::cut(Range pages, const PageFiles& files) {
  const std::size_t unit = transparent_page_size();
  for (Address at = pages.begin; at < pages.end;) {
    const Address huge_end = end_of_hugepages({at, pages.end}, files);
    if (huge_end > at) {
      if (huge_count_ == kMost) return false;
      huge_[huge_count_++] = {at, huge_end};
    }
    if (huge_end == pages.end) break;
    at = std::min(pages.end, huge_end / unit * unit + unit);
    if (ordinary_count_ > 0 && ordinary_[ordinary_count_ - 1].end == huge_end) {
      ordinary_[ordinary_count_ - 1].end = at;
    } else {
      if (ordinary_count_ == kMost) return false;
      ordinary_[ordinary_count_++] = {huge_end, at};
    }
  }
  return true;
}

}  // namespace pinion
