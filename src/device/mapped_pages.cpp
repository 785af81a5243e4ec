#include "device/mapped_pages.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/magic.h>
#include <linux/types.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

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

// Not /proc/self: it is empty once the main thread has exited.
constexpr const char* kMaps = "/proc/thread-self/maps";
constexpr const char* kPools = "/sys/kernel/mm/hugepages";

/// Calls visit(bytes of a hugepage, its directory) for each size that the kernel has.
template <class Visit>
void for_each_hugepage_size(Visit&& visit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(kPools), ::closedir);
  if (directory == nullptr) return;
  while (const dirent* const entry = ::readdir(directory.get())) {
    unsigned long kib = 0;
    if (std::sscanf(entry->d_name, "hugepages-%lukB", &kib) == 1)
      visit(std::size_t{kib} << 10, std::string(kPools) + '/' + entry->d_name);
  }
}

struct HugepageDevice {
  dev_t device;
  std::size_t page_bytes;
};

/// The file systems behind mappings that have no file name: an empty memfd of each size lies in the same.
const std::vector<HugepageDevice>& unnamed_hugepages() {
  static const auto* const known = [] {
    auto* const devices = new std::vector<HugepageDevice>;
    for_each_hugepage_size([&](std::size_t bytes, const std::string&) {
      const auto size = static_cast<unsigned>(std::countr_zero(bytes)) << MAP_HUGE_SHIFT;
      const int file = ::memfd_create("pinion", MFD_CLOEXEC | MFD_HUGETLB | size);
      if (file < 0) return;
      struct stat status {};
      if (::fstat(file, &status) == 0) devices->push_back({status.st_dev, bytes});
      ::close(file);
    });
    return devices;
  }();
  return *known;
}

/// Of a mapped file, by the directory that it lies in: programs unlink such files.
std::size_t page_size_of_file(dev_t device, std::string path) {
  for (const HugepageDevice& known : unnamed_hugepages())
    if (known.device == device) return known.page_bytes;
  const std::size_t name = path.rfind('/');
  if (name == std::string::npos || ::major(device) != 0) return page_size();
  path.resize(std::max<std::size_t>(name, 1));
  struct statfs system {};
  const bool is_huge = ::statfs(path.c_str(), &system) == 0 && system.f_type == HUGETLBFS_MAGIC;
  return is_huge ? static_cast<std::size_t>(system.f_bsize) : page_size();
}

bool any_pool() {
  bool any = false;
  for_each_hugepage_size([&](std::size_t, const std::string& directory) {
    unsigned long pages = 0;
    std::ifstream file(directory + "/nr_hugepages");
    any |= (file >> pages) && pages > 0;
  });
  return any;
}

}  // namespace

bool ask_for_mapping(int maps, Address at, PagedMemory& mapping) {
  MapQuery query{};
  query.size = sizeof query;
  query.address = at;
  if (::ioctl(maps, kMapQuery, &query) != 0) return false;
  mapping = {{query.vma_start, query.vma_end}, query.vma_page_size};
  return true;
}

bool read_mapping(Address at, PagedMemory& mapping) {
  std::ifstream maps(kMaps);
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0, inode = 0;
    unsigned major = 0, minor = 0;
    int path = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %*s %x:%x %lu %n", &begin, &end, &major, &minor, &inode,
                    &path) < 5)
      return false;
    if (end <= at) continue;
    if (begin > at) return false;
    const std::size_t bytes =
        inode == 0 ? page_size()
                   : page_size_of_file(::makedev(major, minor), line.substr(static_cast<std::size_t>(path)));
    mapping = {{begin, end}, bytes};
    return true;
  }
  return false;
}

LargeRange MappedPages::around(Range request) {
  if (!machine_has_any()) [[likely]]
    return {};
  const Maps* const maps = this->maps();
  const int file = maps->file.get();
  return large_pages_around(request, [&](Address at, PagedMemory& mapping) {
    if (file >= 0) {
      if (ask_for_mapping(file, at, mapping)) return true;
      if (errno == ENOENT) return false;  // no mapping
    }
    return read_mapping(at, mapping);
  });
}

bool MappedPages::machine_has_any() {
  const Time now = monotonic_now();
  if (now < look_at_.load(std::memory_order_relaxed)) return has_any_.load(std::memory_order_relaxed);
  const bool any = any_pool();
  has_any_.store(any, std::memory_order_relaxed);
  look_at_.store(now + kLook, std::memory_order_relaxed);
  return any;
}

const MappedPages::Maps* MappedPages::maps() {
  const pid_t process = ::getpid();
  Maps* known = maps_.load(std::memory_order_acquire);
  if (known != nullptr && known->process == process) return known;
  auto* const made = new Maps{process, KeptFile(::open(kMaps, O_RDONLY | O_CLOEXEC))};
  if (!maps_.compare_exchange_strong(known, made, std::memory_order_acq_rel)) {
    delete made;
    return known;
  }
  // The parent's. Its few bytes stay, as another thread may be comparing the process.
  if (known != nullptr) known->file.close();
  return made;
}

MappedPages& mapped_pages() {
  static MappedPages* const pages = new MappedPages;
  return *pages;
}

}  // namespace pinion
