// Random programs against a model: threads map, unmap, remap, give back and allocate memory, lease and really
// transfer it, hold leases over each other's events. The model knows what was last written to each page; what
// a transfer finds there must be that. Hooks and device calls are held up at random between their steps.
// PINION_TEST_SCALE multiplies the steps.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "monitor/libc_hooks.h"
#include "support/deterministic_scheduler.h"
#include "support/ring_engine.h"

namespace pinion::test {
namespace {

constexpr int kThreads = 4;
constexpr std::size_t kStepsPerThread = 10'000;
constexpr std::size_t kPlaces = 24;      ///< pieces of address space, side by side
constexpr std::size_t kPlacePages = 32;  ///< of each
constexpr std::size_t kBlocks = 8;       ///< blocks of malloc's
constexpr std::size_t kBlockPages = 64;  ///< of each at most
constexpr std::size_t kMostHeld = 4;     ///< leases that a thread holds on to
constexpr std::size_t kSamples = 4;      ///< words of a page that are written and compared

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMallocOfLibc = false;  // the sanitizer's unmaps unseen, which no engine can be right about
#else
constexpr bool kMallocOfLibc = true;
#endif

struct Program {
  const char* name;
  const char* options;
};
const Program kPrograms[] = {
    {"LeavePinned", "retention=leave-pinned"},
    {"LeavePinnedLimited", "retention=leave-pinned,limit=1M"},
    {"LeavePinnedFewRegions", "retention=leave-pinned,limit-regions=6"},
    {"Lru", "retention=lru,lru-size=512K"},
    {"Helper", "retention=helper"},
    {"HelperLimited", "retention=helper,limit=1M"},
    {"OnDemand", "retention=on-demand"},
};

void* pointer(Address a) { return reinterpret_cast<void*>(a); }

// ---- the model ----

struct Page {
  std::uint64_t mapping = 0;  ///< pages of one mapping have the same; 0: not mapped
  std::uint64_t stamp = 0;    ///< what was last written; 0: nothing since it was mapped
  std::uint64_t epoch = 0;    ///< of the page behind it: what is pinned under an older one is another page
};

std::uint64_t sample_of(Address a, std::uint64_t stamp) { return stamp ? word_of(a, stamp) : 0; }

/// A piece of memory and what is known of it. Whoever holds the mutex may do anything with it.
struct Place {
  std::mutex mutex;
  Address begin = 0;
  std::vector<Page> pages;
  void* block = nullptr;  ///< malloc's, of which these are the whole pages; null for mappings
  bool of_malloc = false;
  std::uint64_t epochs = 0;

  Address address(std::size_t page) const { return begin + page * page_size(); }
  Range range(std::size_t from, std::size_t to) const { return {address(from), address(to)}; }
  /// The end of the pages from `from` on, up to `to`, that are mapped.
  std::size_t mapped_until(std::size_t from, std::size_t to) const {
    while (from < to && pages[from].mapping) ++from;
    return from;
  }
  /// ... that are of one mapping: the kernel remaps no others in one call.
  std::size_t same_mapping_until(std::size_t from, std::size_t to) const {
    std::size_t end = from;
    while (end < to && pages[end].mapping == pages[from].mapping) ++end;
    return end;
  }
  /// [from, to) is a mapping of its own now.
  void mapped(std::size_t from, std::size_t to) {
    ++epochs;
    for (std::size_t i = from; i < to; ++i) pages[i] = {epochs, 0, epochs};
  }
  void unmapped(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) pages[i] = {};
  }
  /// Fresh pages are behind the mapping.
  void emptied(std::size_t from, std::size_t to) {
    ++epochs;
    for (std::size_t i = from; i < to; ++i) pages[i] = {pages[i].mapping, 0, epochs};
  }
};

struct Counts {
  std::size_t transfers = 0, held_transfers = 0, events = 0, blind = 0;
  std::size_t refused = 0;  ///< for want of room
  std::size_t crossed = 0;  ///< refused because the event that freed the address was not over yet
  Counts& operator+=(const Counts& other) {
    transfers += other.transfers;
    held_transfers += other.held_transfers;
    events += other.events;
    blind += other.blind;
    refused += other.refused;
    crossed += other.crossed;
    return *this;
  }
};

struct World {
  explicit World(const Options& options) : ring(options) {
    const std::size_t bytes = kPlaces * kPlacePages * page_size();
    void* const all = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) std::abort();
    for (std::size_t i = 0; i < kPlaces; ++i) {
      places[i].begin = reinterpret_cast<Address>(all) + i * kPlacePages * page_size();
      places[i].pages.resize(kPlacePages);
      places[i].mapped(0, kPlacePages);
    }
    for (std::size_t i = kPlaces; i < places.size(); ++i) places[i].of_malloc = true;
  }
  ~World() {
    for (Place& place : places) {
      std::free(place.block);
      for (std::size_t i = 0; i < place.pages.size() && !place.of_malloc; ++i) {
        if (place.pages[i].mapping) ::munmap(pointer(place.address(i)), page_size());
      }
    }
  }

  RingEngine ring;
  std::array<Place, kPlaces + (kMallocOfLibc ? kBlocks : 0)> places;
  std::atomic<bool> failed{false};
};

// ---- the threads ----

class Worker {
 public:
  Worker(World& world, unsigned seed) : world_(world), random_(seed), wire_(kBlockPages * page_size()) {}

  Counts run(std::size_t steps) {
    while (steps-- > 0 && !world_.failed.load(std::memory_order_relaxed)) step();
    held_.clear();
    return counts_;
  }

 private:
  struct Held {
    RingLease lease;
    Place* place;
    std::size_t from;
    Address begin;
    std::vector<std::uint64_t> epochs;
  };
  using Lock = std::unique_lock<std::mutex>;

  std::size_t below(std::size_t n) { return random_() % n; }
  CallSite site() { return 1 + below(6); }

  void step() {
    const std::size_t dice = below(32);
    if (dice < 3) return acquire_blindly();
    if (dice < 6 && !held_.empty()) return transfer_held();
    Lock lock;
    Place& place = lock_any(lock);
    place.of_malloc ? step_in_heap(place) : step_in_mappings(place);
  }

  Place& lock_any(Lock& lock) {
    for (;;) {
      Place& place = world_.places[below(world_.places.size())];
      lock = Lock(place.mutex, std::try_to_lock);
      if (lock) return place;
    }
  }

  // ---- transfers ----

  /// A lease on memory that others may be changing at this moment, and no transfer: it may be refused, but
  /// nobody may find its registration later where other memory is.
  void acquire_blindly() {
    const Place& place = world_.places[below(kPlaces)];
    const std::size_t from = below(kPlacePages);
    const std::size_t to = from + 1 + below(kPlacePages - from);
    RingLease lease = world_.ring.acquire(place.range(from, to), Access::all, site());
    ++counts_.blind;
    if (lease && below(4) == 0 && held_.size() < kMostHeld)
      held_.push_back({std::move(lease), nullptr, 0, 0, {}});
  }

  void transfer(Place& place, std::size_t from, std::size_t to) {
    // Requests need not be whole pages; what is transferred are the samples of all of them.
    const Address margin = page_size() / 4;
    const Range request{place.address(from) + below(margin), place.address(to) - below(margin)};
    RingLease lease = world_.ring.acquire(request, Access::all, site());
    if (!lease) {
      const int code = lease.error().code;
      if (code != ENOMEM && code != EAGAIN) fail(place, from, lease.error().message);
      ++(code == ENOMEM ? counts_.refused : counts_.crossed);
      return;
    }
    send_and_receive(lease, place, from, to);
    ++counts_.transfers;
    if (below(8) == 0 && held_.size() < kMostHeld) {
      Held held{std::move(lease), &place, from, place.begin, {}};
      for (std::size_t i = from; i < to; ++i) held.epochs.push_back(place.pages[i].epoch);
      held_.push_back(std::move(held));
    }
  }

  /// Of what a lease from earlier covers, that which is still the same memory; then the lease may go.
  void transfer_held() {
    const std::size_t at = below(held_.size());
    Held& held = held_[at];
    if (held.place) {
      const Lock lock(held.place->mutex, std::try_to_lock);
      if (!lock) return;
      const Place& place = *held.place;
      const auto same = [&](std::size_t i) {
        return place.begin == held.begin && held.from + i < place.pages.size() &&
               place.pages[held.from + i].mapping && place.pages[held.from + i].epoch == held.epochs[i];
      };
      for (std::size_t i = 0; i < held.epochs.size();) {
        std::size_t end = i;
        while (end < held.epochs.size() && same(end)) ++end;
        if (end > i) {
          send_and_receive(held.lease, *held.place, held.from + i, held.from + end);
          ++counts_.held_transfers;
        }
        i = end + 1;
      }
    }
    if (below(2)) {
      std::swap(held_[at], held_.back());
      held_.pop_back();
    }
  }

  void send_and_receive(const RingLease& lease, Place& place, std::size_t from, std::size_t to) {
    const Range range = place.range(from, to);
    if (!expect(place, from, to, reinterpret_cast<const std::byte*>(range.begin),
                "the memory itself is wrong"))
      return;
    std::memset(wire_.data(), 0xa5, range.bytes());
    if (world_.ring.device().send(lease.key(), range, wire_, 0) != 0) return fail(place, from, "not sent");
    if (!expect(place, from, to, wire_.data(), "STALE: other contents were sent")) return;
    if (below(2)) return;
    restamp(place, from, to, wire_.data());
    if (world_.ring.device().receive(lease.key(), range, wire_, 0) != 0)
      return fail(place, from, "not received");
    expect(place, from, to, reinterpret_cast<const std::byte*>(range.begin), "STALE: received elsewhere");
  }

  // ---- contents ----

  template <class F>
  static void for_each_sample(const Place& place, std::size_t from, std::size_t to, F&& f) {
    for (std::size_t page = from; page < to; ++page) {
      for (std::size_t s = 0; s < kSamples; ++s) {
        const std::size_t offset = s * (page_size() / kSamples);
        f(page, (page - from) * page_size() + offset, place.address(page) + offset);
      }
    }
  }
  /// New contents of [from, to), written at `bytes`.
  void restamp(Place& place, std::size_t from, std::size_t to, std::byte* bytes) {
    const std::uint64_t stamp = (static_cast<std::uint64_t>(random_()) << 20 | ++writes_) | 1;
    for (std::size_t i = from; i < to; ++i) place.pages[i].stamp = stamp;
    for_each_sample(place, from, to, [&](std::size_t, std::size_t offset, Address a) {
      *reinterpret_cast<volatile std::uint64_t*>(bytes + offset) = sample_of(a, stamp);
    });
  }
  void write(Place& place, std::size_t from, std::size_t to) {
    restamp(place, from, to, reinterpret_cast<std::byte*>(place.address(from)));
  }
  bool expect(const Place& place, std::size_t from, std::size_t to, const std::byte* bytes,
              const char* otherwise) {
    std::size_t wrong = to;
    for_each_sample(place, from, to, [&](std::size_t page, std::size_t offset, Address a) {
      const auto found = *reinterpret_cast<const volatile std::uint64_t*>(bytes + offset);
      if (found != sample_of(a, place.pages[page].stamp)) wrong = std::min(wrong, page);
    });
    if (wrong < to) fail(place, wrong, otherwise);
    return wrong == to;
  }
  void fail(const Place& place, std::size_t page, const char* what) {
    if (world_.failed.exchange(true)) return;
    ADD_FAILURE() << what << ": page " << page << " of the " << (place.of_malloc ? "block" : "mapping")
                  << " at " << pointer(place.begin);
  }

  // ---- events in mappings ----

  void step_in_mappings(Place& place) {
    const std::size_t from = below(kPlacePages);
    const std::size_t most = from + 1 + below(kPlacePages - from);
    if (!place.pages[from].mapping) return map(place, from, most);
    const std::size_t to = place.mapped_until(from, most);
    const std::size_t dice = below(16);
    if (dice < 7) return transfer(place, from, to);
    if (dice < 9) return write(place, from, to);
    ++counts_.events;
    const Range range = place.range(from, to);
    switch (dice) {
      case 9:
        must(::munmap(pointer(range.begin), range.bytes()) == 0);
        return place.unmapped(from, to);
      case 10:
        must(::syscall(SYS_munmap, range.begin, range.bytes()) == 0);
        return place.unmapped(from, to);
      case 11:
        must(::mmap(pointer(range.begin), range.bytes(), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == pointer(range.begin));
        return place.mapped(from, to);
      case 12:
        must(::madvise(pointer(range.begin), range.bytes(), MADV_DONTNEED) == 0);
        return place.emptied(from, to);
      case 13:
        // Until it is written the kernel may have dropped it, or not.
        must(::madvise(pointer(range.begin), range.bytes(), MADV_FREE) == 0);
        place.emptied(from, to);
        return write(place, from, to);
      case 14:
        return shrink(place, from, to);
      default:
        return move(place, from, to);
    }
  }

  void must(bool done) {
    if (!done) std::abort();
  }

  /// Where it is free: another's mapping may have come there.
  void map(Place& place, std::size_t from, std::size_t to) {
    std::size_t end = from;
    while (end < to && !place.pages[end].mapping) ++end;
    const Range range = place.range(from, end);
    if (::mmap(pointer(range.begin), range.bytes(), PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == pointer(range.begin))
      place.mapped(from, end);
  }

  void shrink(Place& place, std::size_t from, std::size_t to) {
    to = place.same_mapping_until(from, to);
    const std::size_t keep = 1 + below(to - from);
    const Range range = place.range(from, to);
    must(::mremap(pointer(range.begin), range.bytes(), keep * page_size(), 0) == pointer(range.begin));
    place.unmapped(from + keep, to);
  }

  /// To another place, over what is there.
  void move(Place& source, std::size_t from, std::size_t to) {
    Place& target = world_.places[below(kPlaces)];
    if (&target == &source) return;
    const Lock lock(target.mutex, std::try_to_lock);
    to = source.same_mapping_until(from, to);
    const std::size_t pages = to - from;
    const std::size_t at = below(kPlacePages - pages + 1);
    // Where nothing of ours is mapped, others may have mapped.
    if (!lock || target.mapped_until(at, at + pages) != at + pages) return;
    const bool keep = below(2);
    const Range range = source.range(from, to);
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (keep ? MREMAP_DONTUNMAP : 0);
    void* const destination = pointer(target.address(at));
    must(::mremap(pointer(range.begin), range.bytes(), range.bytes(), flags, destination) == destination);
    keep ? source.emptied(from, to) : source.unmapped(from, to);
    target.mapped(at, at + pages);
    write(target, at, at + pages);  // samples depend on the address
  }

  // ---- events in libc's malloc ----

  void step_in_heap(Place& place) {
    const std::size_t pages = place.pages.size();
    const std::size_t dice = below(16);
    if (pages > 0 && dice < 9) {
      const std::size_t from = below(pages);
      const std::size_t to = from + 1 + below(pages - from);
      return dice < 7 ? transfer(place, from, to) : write(place, from, to);
    }
    ++counts_.events;
    const std::size_t bytes = (2 + below(kBlockPages - 1)) * page_size();
    if (place.block && dice < 13) {
      std::free(place.block);
      place.block = nullptr;
      place.pages.clear();
      if (below(16) == 0) ::malloc_trim(0);
      return;
    }
    place.block = std::realloc(place.block, bytes);
    must(place.block != nullptr);
    const auto begin = reinterpret_cast<Address>(place.block);
    place.begin = page_ceil(begin);
    place.pages.resize((page_floor(begin + bytes) - place.begin) / page_size());
    place.mapped(0, place.pages.size());
    write(place, 0, place.pages.size());
  }

  World& world_;
  std::minstd_rand random_;
  Wire wire_;
  std::vector<Held> held_;
  Counts counts_;
  std::uint64_t writes_ = 0;
};

// ---- pauses ----

/// Sometimes holds the calling thread up. In hooks too: no lock, no allocation.
void dawdle() {
  thread_local std::uint32_t state = static_cast<std::uint32_t>(ticks_now()) | 1;
  state = state * 1664525 + 1013904223;
  const std::uint32_t dice = state >> 24;
  if (dice < 24) ::sched_yield();
  if (dice < 8) {
    for (std::uint32_t spin = state >> 20; spin > 0; --spin) StdAtomics::relax();
  }
}

void dawdling_begin(Range range) {
  dawdle();
  Engine::on_memory_change_begin(range);
  dawdle();
}
void dawdling_end(Range range) {
  dawdle();
  Engine::on_memory_change_end(range);
}

class MemoryContents : public ::testing::TestWithParam<Program> {};

TEST_P(MemoryContents, AreWhatWasLastWritten) {
  if (!RingDevice::available())
    GTEST_SKIP() << "no io_uring here, or too little memory may be locked (ulimit -l)";
  // Blocks of both kinds: mappings of their own, and parts of heaps.
  ::mallopt(M_MMAP_THRESHOLD, static_cast<int>(kBlockPages / 2 * page_size()));
  install_libc_hooks({dawdling_begin, dawdling_end});  // the engine finds a sink in place
  Options options;
  ASSERT_FALSE(parse_options(options, GetParam().options));
  {
    World world(options);
    world.ring.device().at = [](RingDevice::Moment, Range, Actor) { dawdle(); };
    const auto steps = static_cast<std::size_t>(static_cast<double>(kStepsPerThread) * test_scale());
    Counts counts;
    std::mutex counting;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        const Counts mine = Worker(world, 1000 + i).run(steps);
        const std::lock_guard lock(counting);
        counts += mine;
      });
    }
    for (std::thread& thread : threads) thread.join();
    const runlog::Counters engine = world.ring.counters();
    std::printf(
        "%zu steps, %zu events; checked: %zu transfers, %zu under older leases; %zu refused, %zu crossed, "
        "%zu blind; %llu hits, %llu registrations, %llu bytes at most\n",
        kThreads * steps, counts.events, counts.transfers, counts.held_transfers, counts.refused,
        counts.crossed, counts.blind, static_cast<unsigned long long>(engine.hits),
        static_cast<unsigned long long>(engine.registrations),
        static_cast<unsigned long long>(engine.registered_peak_bytes));
    EXPECT_GT(counts.transfers, 0u);
    EXPECT_GT(counts.held_transfers, 0u);
    const Limits& limits = world.ring.engine().limits();
    EXPECT_LE(engine.registered_peak_bytes, limits.bytes);
    // There is room for everything at once, and for as much again under older leases.
    if (limits.bytes >= 2 * (kPlaces * kPlacePages + kBlocks * kBlockPages) * page_size() &&
        !options.limit_regions) {
      EXPECT_EQ(counts.refused, 0u);
    }
  }
  uninstall_libc_hooks();
}

INSTANTIATE_TEST_SUITE_P(All, MemoryContents, ::testing::ValuesIn(kPrograms),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pinion::test
