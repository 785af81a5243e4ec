#include "monitor/memory_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>

#include "monitor/file_cuts.h"
#include "monitor/mapping_reader.h"
#include "monitor/own_process.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

namespace pinion {
namespace {

constexpr Address kAddressEnd = UINTPTR_MAX;

/// Size of the huge pages that MAP_HUGETLB means by default; 0: there are none.
std::size_t default_huge_page = 0;
/// All sizes of huge pages that this kernel has; 0: no more.
std::array<std::size_t, 8> huge_pages{};
/// Linux 5.18 to 6.0: MADV_DONTNEED drops the whole of a huge page whose beginning it is given.
bool drops_whole_huge_pages = false;

/// The pages of [address, address + length); empty where the kernel refuses: misaligned, of no length, beyond
/// the end.
Range whole_pages(Address address, std::size_t length) {
  const Range range{address, page_ceil(address + length)};
  return range.begin % page_size() == 0 && !range.empty() ? range : Range{};
}

std::size_t round_up(std::size_t bytes, std::size_t granule) {
  return granule == 0 ? bytes : (bytes + granule - 1) / granule * granule;
}

/// The largest that may begin at the address; 0: none.
std::size_t huge_page_at(Address address) {
  std::size_t largest = 0;
  for (const std::size_t size : huge_pages)
    if (size != 0 && address % size == 0) largest = std::max(largest, size);
  return largest;
}

/// Whether the mapping there is of huge pages. Other mappings accept an mremap that leaves their second page
/// as long as it is.
bool is_of_huge_pages(Address begin) {
  const Address second = begin + page_size();
  const long left = raw_system_call(SYS_mremap, arguments_of(second, page_size(), page_size(), 0));
  return left != to_argument(second) && left != -EFAULT;
}

/// The unit to which the kernel rounds the lengths, in a mapping that begins, or is cut, at the address:
/// asked only where it makes a difference.
std::size_t length_granule(Address address, std::size_t length, std::size_t other_length) {
  const std::size_t huge = huge_page_at(address);
  if (huge == 0 || (length % huge == 0 && other_length % huge == 0)) return page_size();
  return is_of_huge_pages(address) ? huge : page_size();
}

/// The length that mmap will map: whole huge pages on hugetlbfs.
std::size_t mapped_length(std::size_t length, int flags, int fd) {
  if ((flags & MAP_ANONYMOUS) == 0) {
    struct statfs file_system;
    if (is_error(raw_system_call(SYS_fstatfs, arguments_of(fd, &file_system)))) return length;
    if (file_system.f_type != HUGETLBFS_MAGIC) return length;
    return round_up(length, static_cast<std::size_t>(file_system.f_bsize));
  }
  if ((flags & MAP_HUGETLB) == 0) return length;
  const unsigned shift = static_cast<unsigned>(flags) >> MAP_HUGE_SHIFT & MAP_HUGE_MASK;
  return round_up(length, shift == 0 ? default_huge_page : std::size_t{1} << shift);
}

bool drops_pages(int advice) {
  switch (advice) {
    case MADV_WIPEONFORK:  // in children, where the arena would put copies
    case MADV_DONTNEED:
    case MADV_DONTNEED_LOCKED:
    case MADV_FREE:
    case MADV_REMOVE:
    case MADV_GUARD_INSTALL:
      return true;
    default:
      return false;
  }
}

/// The range from which a change of protection takes rights.
Range deprived_range(Address address, std::size_t length, int protection) {
  constexpr int kBoth = PROT_READ | PROT_WRITE;
  if ((protection & kBoth) == kBoth) return {};
  // These two reach to the end of the mapping.
  if ((protection & (PROT_GROWSDOWN | PROT_GROWSUP)) != 0) return all_addresses();
  return whole_pages(address, length);
}

/// Returns the range from the lowest to the highest page of the vectors.
Range spanned_range(Address vectors, std::size_t count) {
  Range span{kAddressEnd, 0};
  std::array<iovec, 8> part;
  for (std::size_t done = 0; done < count; done += part.size()) {
    const std::size_t taken = std::min(count - done, part.size());
    // Read by the kernel: a bad pointer of the caller's only fails this call.
    const std::size_t bytes = taken * sizeof(iovec);
    if (read_memory(vectors + done * sizeof(iovec), part.data(), bytes) != to_argument(bytes))
      return all_addresses();
    for (std::size_t i = 0; i < taken; ++i) {
      const Range range = whole_pages(reinterpret_cast<Address>(part[i].iov_base), part[i].iov_len);
      if (!range.empty()) span = {std::min(span.begin, range.begin), std::max(span.end, range.end)};
    }
  }
  return span.empty() ? Range{} : span;
}

/// The pages that MADV_DONTNEED and its like drop.
Range dropped_range(Address address, std::size_t length, int advice) {
  if (!drops_pages(advice)) return {};
  return whole_pages(address,
                     drops_whole_huge_pages ? round_up(length, length_granule(address, length, 0)) : length);
}

/// The other mapping of the file whose pages MADV_REMOVE drops here; several: all addresses.
Range removed_elsewhere(Range here, const SystemCallArguments& arguments) {
  const ConcernedMemory all = cut_memory(SYS_madvise, arguments);
  if (all.first == here) return all.second;
  if (all.second == here || all.second.empty()) return all.first;
  return all_addresses();
}

/// The pages that mremap takes away at the old place; sizes as the kernel rounds them.
Range mremap_source(Address address, std::size_t old_size, std::size_t new_size, int flags) {
  const Range source = whole_pages(address, old_size);
  if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0) return source;
  const std::size_t kept = page_ceil(new_size);
  // A shrinking mapping never moves.
  if (kept < source.bytes()) return {source.begin + kept, source.end};
  return kept > source.bytes() && (flags & MREMAP_MAYMOVE) != 0 ? source : Range{};
}

/// The mapping that shmat(SHM_REMAP) will put over others.
Range attached_range(int id, Address address, int flags) {
  struct shmid_ds segment;
  if (is_error(raw_system_call(SYS_shmctl, arguments_of(id, IPC_STAT, &segment)))) return {};
  const Address begin = (flags & SHM_RND) != 0 ? page_floor(address) : address;
  // The kernel does not report whether a segment has huge pages; assume them where possible.
  return whole_pages(begin, round_up(segment.shm_segsz, std::max(huge_page_at(begin), page_size())));
}

/// Returns the range that shmdt(address) unmaps: the pieces that still lie where attaching `address` has put
/// them.
Range detached_range(Address start) {
  MappingReader reader;
  Range range{start, start};
  std::uint64_t segment = 0;
  for (Mapping mapping; reader.next(mapping);) {
    if (!mapping.system_v || mapping.range.begin < start || mapping.range.begin - start != mapping.offset)
      continue;
    if (!range.empty() && mapping.inode != segment) continue;
    segment = mapping.inode;
    range.end = mapping.range.end;
  }
  // Without /proc the segment's end is unknown.
  return reader.failed() ? Range{start, all_addresses().end} : range;
}

/// The whole pages that the break gives up when it moves.
Range pages_above(Address new_break) {
  if (new_break == 0) return {};  // the question where it is
  return {page_ceil(new_break), page_ceil(static_cast<Address>(raw_system_call(SYS_brk, {})))};
}

std::size_t read_default_huge_page() {
  KernelText text("/proc/meminfo");
  unsigned long kilobytes = 0;
  for (std::string line; text.line(line) && std::sscanf(line.c_str(), "Hugepagesize: %lu", &kilobytes) != 1;)
    continue;
  return kilobytes * 1024;
}

void read_huge_pages() {
  DIR* const sizes = ::opendir("/sys/kernel/mm/hugepages");
  if (sizes == nullptr) return;
  std::size_t known = 0;
  while (const dirent* const entry = ::readdir(sizes)) {
    unsigned long kilobytes = 0;
    if (known < huge_pages.size() && std::sscanf(entry->d_name, "hugepages-%lukB", &kilobytes) == 1)
      huge_pages[known++] = kilobytes * 1024;
  }
  ::closedir(sizes);
}

bool is_kernel_of_whole_drops() {
  utsname system{};
  int major = 0, minor = 0;
  return ::uname(&system) == 0 && std::sscanf(system.release, "%d.%d", &major, &minor) == 2 &&
         ((major == 5 && minor >= 18) || (major == 6 && minor == 0));
}

constexpr std::array<bool, kMemoryCallNumbers> mark_memory_calls() {
  std::array<bool, kMemoryCallNumbers> marked{};
  for (const std::size_t number :
       {SYS_munmap, SYS_mmap, SYS_mremap, SYS_madvise, SYS_brk, SYS_shmat, SYS_shmdt, SYS_mprotect,
        SYS_pkey_mprotect, SYS_remap_file_pages, SYS_process_madvise, SYS_ftruncate, SYS_truncate,
        SYS_fallocate, SYS_userfaultfd})
    marked[number] = true;
  return marked;
}

ChangeKind kind_of_advice(int advice) {
  if (advice == MADV_DONTNEED) return ChangeKind::zeros;
  return advice == MADV_FREE ? ChangeKind::lazily : ChangeKind::other;
}

/// Tells what happens at the old place. A mapping that shrinks there loses its end, as by munmap.
ChangeKind kind_of_mremap(const SystemCallArguments& arguments) {
  const int flags = static_cast<int>(arguments[3]);
  if ((flags & MREMAP_DONTUNMAP) != 0) return ChangeKind::other;
  const bool shrinks = page_ceil(static_cast<Address>(arguments[2])) < static_cast<Address>(arguments[1]);
  return shrinks && (flags & MREMAP_FIXED) == 0 ? ChangeKind::unmap : ChangeKind::moves;
}

}  // namespace

Range all_addresses() { return {0, page_floor(UINTPTR_MAX)}; }

bool is_private_anonymous(Range range) {
  MappingReader reader;
  for (Mapping mapping; reader.next(mapping) && mapping.range.begin <= range.begin;) {
    if (mapping.range.end <= range.begin) continue;
    if (!mapping.is_private || mapping.inode != 0) return false;
    range.begin = mapping.range.end;
    if (range.empty()) return true;
  }
  return false;
}

constinit const std::array<bool, kMemoryCallNumbers> pinion_memory_calls = mark_memory_calls();

bool ConcernedMemory::contains(const ConcernedMemory& other) const {
  const auto has = [this](Range r) { return r.empty() || first.contains(r) || second.contains(r); };
  return has(other.first) && has(other.second);
}

void prepare_memory_calls() {
  static_cast<void>(page_size());
  default_huge_page = read_default_huge_page();
  read_huge_pages();
  drops_whole_huge_pages = is_kernel_of_whole_drops();
}

ConcernedMemory concerned_memory(long number, const SystemCallArguments& arguments) {
  const auto address = [&](std::size_t i) { return static_cast<Address>(arguments[i]); };
  const auto size = [&](std::size_t i) { return static_cast<std::size_t>(arguments[i]); };
  const auto flags = [&](std::size_t i) { return static_cast<int>(arguments[i]); };
  switch (number) {
    case SYS_munmap:
      return {whole_pages(address(0), size(1)), {}};
    case SYS_mmap: {
      const bool replaces =
          (flags(3) & MAP_FIXED) != 0 && (flags(3) & MAP_FIXED_NOREPLACE) != MAP_FIXED_NOREPLACE;
      if (!replaces) return {};
      return {whole_pages(address(0), mapped_length(size(1), flags(3), flags(4))), {}};
    }
    case SYS_mremap: {
      const std::size_t granule = length_granule(address(0), size(1), size(2));
      const std::size_t before = round_up(size(1), granule), after = round_up(size(2), granule);
      return {mremap_source(address(0), before, after, flags(3)),
              (flags(3) & MREMAP_FIXED) != 0 ? whole_pages(address(4), after) : Range{}};
    }
    case SYS_madvise: {
      const Range here = dropped_range(address(0), size(1), flags(2));
      return {here, flags(2) == MADV_REMOVE ? removed_elsewhere(here, arguments) : Range{}};
    }
    case SYS_process_madvise:
      if (flags(3) == MADV_REMOVE) return {all_addresses(), {}};
      return {drops_pages(flags(3)) ? spanned_range(address(1), size(2)) : Range{}, {}};
    case SYS_brk:
      return {pages_above(address(0)), {}};
    case SYS_shmat:
      if ((flags(2) & SHM_REMAP) == 0) return {};
      return {attached_range(flags(0), address(1), flags(2)), {}};
    case SYS_shmdt:
      return {detached_range(address(0)), {}};
    case SYS_mprotect:
    case SYS_pkey_mprotect:
      return {deprived_range(address(0), size(1), flags(2)), {}};
    case SYS_remap_file_pages:
      return {whole_pages(page_floor(address(0)), size(1)), {}};
    case SYS_ftruncate:
    case SYS_truncate:
    case SYS_fallocate:
      return cut_memory(number, arguments);
    default:
      return {};
  }
}

Range named_memory(long number, const SystemCallArguments& arguments) {
  const auto address = [&](std::size_t i) { return static_cast<Address>(arguments[i]); };
  const auto size = [&](std::size_t i) { return static_cast<std::size_t>(arguments[i]); };
  const auto flags = [&](std::size_t i) { return static_cast<int>(arguments[i]); };
  switch (number) {
    case SYS_mmap:  // the kernel rounds what is only a hint
      return address(0) == 0 ? Range{} : whole_pages(page_floor(address(0)), size(1));
    case SYS_mremap:  // such a hint, too
      return (flags(3) & MREMAP_DONTUNMAP) == 0 ? Range{} : whole_pages(page_floor(address(4)), size(2));
    case SYS_shmat:
      return address(1) == 0 ? Range{} : attached_range(flags(0), address(1), flags(2));
    case SYS_madvise:
    case SYS_mprotect:
    case SYS_pkey_mprotect:
      return whole_pages(address(0), size(1));
    default:
      return {};
  }
}

bool lacks_memory(long number, long result) {
  switch (number) {
    case SYS_mmap:
    case SYS_mremap:
    case SYS_brk:
    case SYS_shmat:
    case SYS_mprotect:
    case SYS_pkey_mprotect:
      return result == -ENOMEM || result == -EAGAIN;
    default:
      return false;
  }
}

ChangeKind change_kind(long number, const SystemCallArguments& arguments) {
  switch (number) {
    case SYS_brk:
      return ChangeKind::heap;
    case SYS_munmap:
      return ChangeKind::unmap;
    case SYS_mprotect:
    case SYS_pkey_mprotect:
      return ChangeKind::rights;
    case SYS_mremap:
      return kind_of_mremap(arguments);
    case SYS_madvise:
      return kind_of_advice(static_cast<int>(arguments[2]));
    default:
      return ChangeKind::other;
  }
}

Answer alternative_to(long number) {
  switch (number) {
    case SYS_munmap:
      return Answer::hold_back;
    case SYS_shmdt:
      return Answer::proceed;
    default:
      return Answer::refuse;
  }
}

bool maps_plainly(const SystemCallArguments& arguments) {
  return arguments[0] == 0 && static_cast<int>(arguments[2]) == (PROT_READ | PROT_WRITE) &&
         static_cast<int>(arguments[3]) == (MAP_PRIVATE | MAP_ANONYMOUS);
}

NewMapping appeared_memory(long number, const SystemCallArguments& arguments, long result) {
  if (is_error(result)) return {};
  const auto at = static_cast<Address>(result);
  const auto size = [&](std::size_t i) { return static_cast<std::size_t>(arguments[i]); };
  const auto flags = [&](std::size_t i) { return static_cast<int>(arguments[i]); };
  switch (number) {
    case SYS_mmap:
      if ((flags(3) & MAP_FIXED) != 0) return {};
      return {whole_pages(at, size(1)), maps_plainly(arguments)};
    case SYS_mremap: {
      if ((flags(3) & MREMAP_FIXED) != 0) return {};
      const bool moved = at != static_cast<Address>(arguments[0]);
      const std::size_t before = moved ? 0 : page_ceil(size(1));
      return {size(2) > before ? whole_pages(at + before, size(2) - before) : Range{}};
    }
    default:
      return {};
  }
}

}  // namespace pinion
