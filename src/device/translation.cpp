#include "device/translation.h"

#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/types.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace pinion {

namespace {

/// struct procmap_query of <linux/fs.h> since 6.11, which older headers lack.
struct MapQuery {
  __u64 size;
  __u64 flags;
  __u64 address;
  __u64 vma_start;
  __u64 vma_end;
  __u64 vma_flags;
  __u64 vma_page_size;
  __u64 vma_offset;
  __u64 inode;
  __u32 dev_major;
  __u32 dev_minor;
  __u32 vma_name_size;
  __u32 build_id_size;
  __u64 vma_name_address;
  __u64 build_id_address;
};
constexpr unsigned long kMapQuery = _IOWR('f', 17, MapQuery);

/// The page size of the one mapping that all of `range` lies in; the system's where there is none.
std::size_t mapping_page_size(Range range) {
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return page_size();
  MapQuery query{};
  query.size = sizeof query;
  query.address = range.begin;
  const bool known = ioctl(maps, kMapQuery, &query) == 0;
  close(maps);
  return known && range.end <= query.vma_end ? query.vma_page_size : page_size();
}

}  // namespace

std::size_t translation_entries(Range pages) {
  const std::size_t size = mapping_page_size(pages);
  return (pages.end - 1) / size - pages.begin / size + 1;
}

}  // namespace pinion
