#include "device/kernel/mapped_pages.h"

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

#include <algorithm>
#include <bit>
#include <climits>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "monitor/mapping_reader.h"

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
constexpr __u64 kIsWritable = 2, kIsShared = 8;  // of vma_flags

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

/// File systems by their device numbers, and the size of the pages of mappings of their files.
class FileSystems {
 public:
  /// Finds the ones behind mappings without a file name: an empty memfd of each size lies in the same.
  FileSystems() {
    for_each_hugepage_size([this](std::size_t bytes, const std::string&) {
      const auto size = static_cast<unsigned>(std::countr_zero(bytes)) << MAP_HUGE_SHIFT;
      const int file = ::memfd_create("pinion", MFD_CLOEXEC | MFD_HUGETLB | size);
      if (file < 0) return;
      struct stat status {};
      if (::fstat(file, &status) == 0) known_.push_back({status.st_dev, bytes});
      ::close(file);
    });
  }
  /// Finds a mapped file's file system by the file's directory: programs unlink such files.
  std::size_t page_bytes(dev_t device, const std::string& path) {
    for (const auto& [known, bytes] : known_)
      if (known == device) return bytes;
    const std::size_t name = path.rfind('/');
    if (name == std::string::npos || ::major(device) != 0) return page_size();
    struct statfs system {};
    const std::string directory = path.substr(0, std::max<std::size_t>(name, 1));
    const bool is_huge = ::statfs(directory.c_str(), &system) == 0 && system.f_type == HUGETLBFS_MAGIC;
    known_.emplace_back(device, is_huge ? static_cast<std::size_t>(system.f_bsize) : page_size());
    return known_.back().second;
  }

 private:
  std::vector<std::pair<dev_t, std::size_t>> known_;
};

bool any_pool() {
  bool any = false;
  for_each_hugepage_size([&](std::size_t, const std::string& directory) {
    any |= kernel_number((directory + "/nr_hugepages").c_str(), 0) > 0;
  });
  return any;
}

}  // namespace

bool ask_for_mapping(int maps, Address at, AnsweredMapping& mapping) {
  MapQuery query{};
  query.size = sizeof query;
  query.address = at;
  if (::ioctl(maps, kMapQuery, &query) != 0) return false;
  mapping.range = {query.vma_start, query.vma_end};
  mapping.page_bytes = query.vma_page_size;
  mapping.writable = (query.vma_flags & kIsWritable) != 0;
  mapping.is_shared = (query.vma_flags & kIsShared) != 0;
  mapping.of_file = query.inode != 0;
  return true;
}

bool ask_for_mapping(int maps, Address at, PagedMemory& mapping) {
  AnsweredMapping answer;
  if (!ask_for_mapping(maps, at, answer)) return false;
  mapping = answer;
  return true;
}

bool ask_for_file(int maps, Address at, MappedFile& file) {
  char name[PATH_MAX] = "";
  MapQuery query{};
  query.size = sizeof query;
  query.address = at;
  query.vma_name_address = reinterpret_cast<Address>(name);
  query.vma_name_size = sizeof name;
  if (::ioctl(maps, kMapQuery, &query) != 0 || query.inode == 0) return false;
  file = {{query.vma_start, query.vma_end},
          (query.vma_flags & kIsShared) != 0,
          ::makedev(query.dev_major, query.dev_minor),
          query.inode,
          name};
  return !file.name.empty();
}

bool for_each_mapped_file(const std::function<void(const MappedFile&)>& visit) {
  MappingReader maps;
  std::string name;
  for (Mapping mapping; maps.next(mapping, &name);)
    if (mapping.inode != 0) visit({mapping.range, !mapping.is_private, mapping.device, mapping.inode, name});
  return !maps.failed();
}

LargePages read_large_mappings() {
  LargePages found;
  FileSystems systems;
  for_each_mapped_file([&](const MappedFile& file) {
    const std::size_t bytes = systems.page_bytes(file.device, file.name);
    if (bytes > page_size()) found.add({file.range, bytes});
  });
  return found;
}

LargeRange MappedPages::around(Range request) {
  if (!machine_has_any()) [[likely]]
    return {};
  Maps& maps = this->maps();
  if (!maps.answers) return maps.around_by_text(request);
  const int file = maps.file.get();
  if (file < 0) return maps.around_by_text(request);  // closed by the program
  return large_pages_around(
      request, [file](Address at, PagedMemory& mapping) { return ask_for_mapping(file, at, mapping); });
}

int MappedPages::question_file() {
  const Maps& maps = this->maps();
  return maps.answers ? maps.file.get() : -1;
}

MappedPages::Maps::Maps(pid_t of, bool allows_questions)
    : process(of), file(::open(kMaps, O_RDONLY | O_CLOEXEC)) {
  PagedMemory own;
  answers = allows_questions && ask_for_mapping(file.get(), reinterpret_cast<Address>(&own), own);
}

LargeRange MappedPages::Maps::around_by_text(Range request) {
  const ProcessLock lock(mutex);
  return large.found(read_large_mappings).around(request);
}

bool MappedPages::machine_has_any() {
  const Time now = monotonic_now();
  if (now < look_at_.load(std::memory_order_relaxed)) return has_any_.load(std::memory_order_relaxed);
  const bool any = any_pool();
  has_any_.store(any, std::memory_order_relaxed);
  look_at_.store(now + kLook, std::memory_order_relaxed);
  return any;
}

MappedPages::Maps& MappedPages::maps() {
  const pid_t process = ::getpid();
  Maps* known = maps_.load(std::memory_order_acquire);
  if (known != nullptr && known->process == process) return *known;
  auto* const made = new Maps(process, allows_questions_);
  if (!maps_.compare_exchange_strong(known, made, std::memory_order_acq_rel)) {
    delete made;
    return *known;
  }
  made->parents.reset(known);
  if (known != nullptr) known->file.close();
  return *made;
}

MappedPages& mapped_pages() {
  static MappedPages* const pages = new MappedPages;
  return *pages;
}

}  // namespace pinion
