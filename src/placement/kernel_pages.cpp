#include "placement/kernel_pages.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <string>

#include "base/lock_calls.h"
#include "monitor/mapping_reader.h"
#include "monitor/memory_events.h"
#include "monitor/own_process.h"
#include "monitor/system_call.h"
#include "monitor/transparent_hugepages.h"

#ifndef MADV_GUARD_REMOVE
#define MADV_GUARD_REMOVE 103
#endif

namespace pinion {

namespace {

constexpr int kDefaultPolicy = 0, kLocalPolicy = 4;  // MPOL_DEFAULT, MPOL_LOCAL

Range map_unseen(std::size_t bytes) {
  const long at = raw_system_call(
      SYS_mmap, arguments_of(0L, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0));
  return is_error(at) ? Range{} : Range{static_cast<Address>(at), static_cast<Address>(at) + bytes};
}

bool advise(Range range, int advice) {
  return !is_error(raw_system_call(SYS_madvise, arguments_of(range.begin, range.bytes(), advice)));
}

constinit std::atomic<bool> g_charges_untouched{false};

enum class TransparentMode : std::uint8_t { unknown, off, on };
constinit std::atomic<TransparentMode> g_transparent{TransparentMode::unknown};

bool transparent_is_on() {
  if (g_transparent.load(std::memory_order_relaxed) == TransparentMode::unknown) look_for_transparent_pages();
  return g_transparent.load(std::memory_order_relaxed) == TransparentMode::on;
}

Range map_aligned(std::size_t bytes) {
  Range range = map_unseen(bytes);
  if (range.begin % kHugepage == 0) return range;
  unmap_unseen(range);
  range = map_unseen(bytes + kHugepage);
  if (range.empty()) return range;
  const Address begin = (range.begin + kHugepage - 1) & ~(kHugepage - 1);
  unmap_unseen({range.begin, begin});
  unmap_unseen({begin + bytes, range.end});
  return {begin, begin + bytes};
}

}  // namespace

void look_for_transparent_pages() {
  const bool given = transparent_hugepages() == TransparentHugepages::given;
  g_transparent.store(given ? TransparentMode::on : TransparentMode::off, std::memory_order_relaxed);
}

void look_at_overcommit(const char* file) {
  g_charges_untouched.store(charges_untouched_memory(file), std::memory_order_relaxed);
}

void unmap_unseen(Range range) {
  if (!range.empty()) raw_system_call(SYS_munmap, arguments_of(range.begin, range.bytes()));
}

bool protect_unseen(Range range, int protection) {
  return !is_error(raw_system_call(SYS_mprotect, arguments_of(range.begin, range.bytes(), protection)));
}

bool make_plain_unseen(Range range, bool hidden) {
  // A plain mprotect would leave the protection key. Key 0 is refused where the processor has no keys.
  constexpr int kBoth = PROT_READ | PROT_WRITE, kCommonKey = 0;
  const bool writable = !is_error(raw_system_call(SYS_pkey_mprotect, arguments_of(range.begin, range.bytes(),
                                                                                  kBoth, kCommonKey))) ||
                        protect_unseen(range, kBoth);
  // Refusals mean that this kernel lacks the feature, so that nobody used it.
  advise(range, MADV_DODUMP);
  for (const int advice : {MADV_NORMAL, MADV_UNMERGEABLE, MADV_GUARD_REMOVE}) advise(range, advice);
  advise_hugepages(range);
  raw_system_call(SYS_mbind, arguments_of(range.begin, range.bytes(), kDefaultPolicy, 0L, 0L, 0L));
  return writable && (hidden || hide_unseen(range, false)) && advise(range, MADV_KEEPONFORK);
}

void make_later_calls_unseen() {
  make_plain_unseen({}, false);
  unlock_unseen({});
  move_unseen({}, {});
  make_lock_calls();
  const timespec refused{0, -1};
  raw_system_call(SYS_nanosleep, arguments_of(&refused, 0L));
}

void unlock_unseen(Range range) { raw_system_call(SYS_munlock, arguments_of(range.begin, range.bytes())); }

bool move_unseen(Range from, Range to) {
  return !is_error(raw_system_call(SYS_mremap, arguments_of(from.begin, from.bytes(), to.bytes(),
                                                            MREMAP_MAYMOVE | MREMAP_FIXED, to.begin)));
}

bool advise_hugepages(Range range) { return transparent_is_on() && advise(range, MADV_HUGEPAGE); }

Pages map_private(std::size_t bytes) {
  const Range range = map_aligned(bytes);
  const bool transparent = !range.empty() && advise_hugepages(range);
  return {range, transparent ? Backing::transparent : Backing::base};
}

// ---- a child's copies ----

void copy_unseen(Range from, Address to) {
  constexpr std::size_t kReadAtOnce = std::size_t{1} << 20;
  while (!from.empty()) {
    long bytes = read_memory(from.begin, reinterpret_cast<void*>(to), from.bytes());
    if (is_error(bytes) || bytes == 0)
      bytes = read_memory_without_rights(from.begin, reinterpret_cast<void*>(to),
                                         std::min(from.bytes(), kReadAtOnce));
    // A page that nobody can read is left out.
    const std::size_t done = is_error(bytes) || bytes == 0 ? page_size() : static_cast<std::size_t>(bytes);
    from.begin += std::min(done, from.bytes());
    to += done;
  }
}

bool copy_rights_unseen(Range from, Range copy) {
  bool any = false;
  for_each_mapping(from, [&](const Mapping& mapping) {
    if (mapping.protection == (PROT_READ | PROT_WRITE)) return;
    const Address begin = std::max(mapping.range.begin, from.begin),
                  end = std::min(mapping.range.end, from.end);
    const Address to = copy.begin + (begin - from.begin);
    protect_unseen({to, end == from.end ? copy.end : to + (end - begin)}, mapping.protection);
    any = true;
  });
  return any;
}

bool move_pieces_unseen(Range from, Range to) {
  bool moved = true;
  const bool listed = for_each_mapping(from, [&](const Mapping& mapping) {
    const Range piece{std::max(mapping.range.begin, from.begin), std::min(mapping.range.end, from.end)};
    const Address place = to.begin + (piece.begin - from.begin);
    moved = move_unseen(piece, {place, place + piece.bytes()}) && moved;
  });
  return listed ? moved : move_unseen(from, to);
}

// ---- addresses of the arena ----

namespace {

Range reserve(Address at, std::size_t bytes, int flags) {
  const long got = raw_system_call(
      SYS_mmap,
      arguments_of(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0));
  return is_error(got) ? Range{} : Range{static_cast<Address>(got), static_cast<Address>(got) + bytes};
}

}  // namespace

Range reserve_unseen(std::size_t bytes) {
  const Range range = reserve(0, bytes + kHugepage, 0);
  if (range.empty()) return range;
  const Address begin = (range.begin + kHugepage - 1) & ~(kHugepage - 1);
  unmap_unseen({range.begin, begin});
  unmap_unseen({begin + bytes, range.end});
  return {begin, begin + bytes};
}

bool reserve_unseen_at(Range range) {
  const Range got = reserve(range.begin, range.bytes(), MAP_FIXED_NOREPLACE);
  if (got == range) return true;
  unmap_unseen(got);  // kernels before 4.17 map elsewhere
  return false;
}

bool empty_unseen(Range range) { return !reserve(range.begin, range.bytes(), MAP_FIXED).empty(); }

bool commit_unseen(Pages& pages) {
  const Range range = pages.range;
  if (!protect_unseen(range, PROT_READ | PROT_WRITE)) return false;
  const bool transparent = transparent_is_on() && advise(range, MADV_HUGEPAGE);
  pages.backing = transparent ? Backing::transparent : Backing::base;
  return true;
}

bool hide_unseen(Range range, bool hidden) { return advise(range, hidden ? MADV_DONTFORK : MADV_DOFORK); }

namespace {

Pages map_uncharged(std::size_t bytes) {
  return {reserve_unseen(bytes), transparent_is_on() ? Backing::transparent : Backing::base};
}

}  // namespace

Pages KernelPages::map(std::size_t least, std::size_t wanted) {
  const auto map = charges_untouched() ? map_uncharged : map_private;
  const Pages pages = map(wanted);
  return pages.range.empty() && least < wanted ? map(least) : pages;
}

bool KernelPages::charges_untouched() const { return g_charges_untouched.load(std::memory_order_relaxed); }

bool KernelPages::charge(Range hugepages) {
  if (!protect_unseen(hugepages, PROT_READ | PROT_WRITE)) return false;
  advise_hugepages(hugepages);
  return true;
}

namespace {

/// Calls libc's function, so that the hooks of other libraries see it too.
bool advise_seen(Range range, int advice) {
  memory_events::begin({range});
  const bool done = ::madvise(reinterpret_cast<void*>(range.begin), range.bytes(), advice) == 0;
  memory_events::end(range);
  return done;
}

}  // namespace

bool map_over(Range range, int protection, int flags) {
  memory_events::begin({range});
  const bool mapped = ::mmap(reinterpret_cast<void*>(range.begin), range.bytes(), protection,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | flags, -1, 0) != MAP_FAILED;
  memory_events::end(range);
  return mapped;
}

bool discard_seen(Range range) { return advise_seen(range, MADV_DONTNEED); }

bool KernelPages::discard(Range hugepages) {
  return charges_untouched() ? map_over(hugepages, PROT_NONE, MAP_NORESERVE) : discard_seen(hugepages);
}
bool KernelPages::offer(Range hugepages) { return !charges_untouched() && advise_seen(hugepages, MADV_FREE); }

void KernelPages::unmap(const Pages& pages) {
  memory_events::begin({pages.range});
  ::munmap(reinterpret_cast<void*>(pages.range.begin), pages.range.bytes());
  memory_events::end(pages.range);
}

void* KernelPages::map_records(std::size_t bytes) {
  const Range range = map_unseen(bytes);
  return reinterpret_cast<void*>(range.begin);
}

void KernelPages::unmap_records(void* records, std::size_t bytes) { unmap_unseen(Range::of(records, bytes)); }

std::uint64_t transparent_bytes(const Range* ranges, std::size_t count) {
  KernelText smaps("/proc/thread-self/smaps");
  std::size_t ours = 0;
  std::uint64_t bytes = 0;
  for (std::string line; smaps.line(line);) {
    Range mapping;
    std::uint64_t kilobytes = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &mapping.begin, &mapping.end) == 2) {
      ours = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const Range both{std::max(mapping.begin, ranges[i].begin), std::min(mapping.end, ranges[i].end)};
        if (!both.empty()) ours += both.bytes();
      }
    } else if (std::sscanf(line.c_str(), "AnonHugePages: %" SCNu64, &kilobytes) == 1) {
      bytes += std::min<std::uint64_t>(kilobytes << 10, ours);
    }
  }
  return bytes;
}

}  // namespace pinion
