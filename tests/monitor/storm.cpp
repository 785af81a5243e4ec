// A storm of memory events for a given time: threads map memory, fill it, transfer it and unmap it,
// beside memory that stays registered. Some of it loses its pages first: it is dropped, mapped over, or its
// file is cut or punched; marks are set and cleared. Beside that, each thread has a constant number of blocks
// of malloc's at several alignments. Addresses come again at once, threads end and begin, and nothing may
// grow: a remnant of each of many million unmaps would show.
//
//   storm [--seconds N] [--threads N] [--idle REGIONS] [--report SECONDS] [--options TEXT]
//
// Prints a line each minute. Ends with 1 when a transfer found other contents than the memory's, when an idle
// region was lost, or when something grows. Regions, pinned bytes, contexts of threads, and the helper's
// count of uses (from the board of events) are bounded by the threads' possible maximum. After the first
// tenth of the run (at most a minute) the registry's own memory must stay constant, and the process may grow
// by 8 MiB. The latter is required of runs of ten minutes: allocators take time to settle.
#include <fcntl.h>
#include <getopt.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/sanitizers.h"
#include "support/transfer_engine.h"

namespace pinion::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr std::size_t kMostPages = 32;          ///< of a piece of memory
constexpr std::size_t kIdlePages = 4;           ///< of each region that stays
constexpr std::size_t kTransferredRounds = 16;  ///< one in so many is really transferred
constexpr std::size_t kRoundsOfThread = 20'000;
constexpr std::size_t kBlocks = 16;  ///< of malloc's, of each thread
constexpr std::size_t kMostGrowth = std::size_t{8} << 20;
constexpr seconds kGrowthBelievedAfter{600};

struct Settings {
  seconds time{5};
  seconds report{60};
  unsigned threads = 4;
  std::size_t idle = 1000;
  Options options = TransferEngine::options(RetentionKind::leave_pinned);
};

std::uint64_t status_bytes(std::initializer_list<const char*> keys) {
  std::ifstream status("/proc/self/status");
  std::uint64_t sum = 0;
  for (std::string line; std::getline(status, line);) {
    for (const std::string key : keys) {
      if (line.rfind(key, 0) == 0) sum += std::strtoull(line.c_str() + key.size(), nullptr, 10) * 1024;
    }
  }
  return sum;
}

Range map_pages(std::size_t pages) {
  void* const at =
      ::mmap(nullptr, pages * page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) std::abort();
  return Range::of(at, pages * page_size());
}

void unmap(Range range) {
  if (::munmap(reinterpret_cast<void*>(range.begin), range.bytes()) != 0) std::abort();
}

/// Memory of a file without a name that only this process has.
class FileMemory {
 public:
  FileMemory() : file_(::memfd_create("storm", MFD_CLOEXEC)) { resize(kMostPages * page_size()); }
  ~FileMemory() { ::close(file_); }
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  Range map(std::size_t pages) const {
    void* const at = ::mmap(nullptr, pages * page_size(), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (at == MAP_FAILED) std::abort();
    return Range::of(at, pages * page_size());
  }
  /// Takes the pages from all mappings, in one of several ways.
  void cut(unsigned way) const {
    const auto bytes = static_cast<off_t>(kMostPages * page_size());
    if (way % 3 == 0) return resize(0), resize(kMostPages * page_size());
    if (way % 3 == 1) {
      if (::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes) != 0) std::abort();
      return;
    }
    const Range other = map(kMostPages);
    if (::madvise(reinterpret_cast<void*>(other.begin), other.bytes(), MADV_REMOVE) != 0) std::abort();
    unmap(other);
  }

 private:
  void resize(std::size_t bytes) const {
    if (::ftruncate(file_, static_cast<off_t>(bytes)) != 0) std::abort();
  }
  const int file_;
};

/// A constant number of malloc's blocks at alignments up to 64 KiB, each of which is replaced in its turn.
class LiveBlocks {
 public:
  LiveBlocks() = default;
  ~LiveBlocks() {
    for (void* block : blocks_) std::free(block);
  }
  LiveBlocks(const LiveBlocks&) = delete;
  LiveBlocks& operator=(const LiveBlocks&) = delete;

  /// The whole pages of a new one.
  Range replace(unsigned number) {
    void*& block = blocks_[next_++ % kBlocks];
    std::free(block);
    const std::size_t bytes = (2 + number % kMostPages) * page_size();
    if (::posix_memalign(&block, std::size_t{16} << number / kMostPages % 13, bytes) != 0) std::abort();
    const auto begin = reinterpret_cast<Address>(block);
    return {page_ceil(begin), page_floor(begin + bytes)};
  }

 private:
  void* blocks_[kBlocks] = {};
  std::size_t next_ = 0;
};

class Storm {
 public:
  explicit Storm(const Settings& settings)
      : settings_(settings), busy_((8 + kBlocks) * settings.threads), ring_(settings.options) {
    // All regions that there will ever be at once, so that the registry need not grow later.
    std::vector<TransferLease> leases;
    for (std::size_t i = 0; i < settings.idle + busy_; ++i) {
      // A page lies between them, so that they stay regions of their own.
      const Range all = map_pages(kIdlePages + 1);
      const Range memory{all.begin, all.end - page_size()};
      fill(memory, i);
      leases.push_back(ring_.acquire(memory));
      if (!leases.back()) std::abort();
      idle_.push_back(memory);
    }
    leases.clear();
    // Not where events are unseen; and other strategies deregister unused memory.
    keeps_idle_ =
        settings.options.retention == RetentionKind::leave_pinned && ring_.device().live() == idle_.size();
    for (; idle_.size() > settings.idle; idle_.pop_back()) unmap(idle_.back());
  }

  bool run() {
    const auto begin = Clock::now();
    const auto end = begin + settings_.time;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < settings_.threads; ++i) threads.emplace_back([this, i] { live(i); });

    auto next = begin + std::min<Clock::duration>(Clock::duration(settings_.time) / 10, seconds(60));
    State at_start;
    for (bool first = true; next < end && right(); next += settings_.report, first = false) {
      std::this_thread::sleep_until(next);
      const State now = state();
      print(now, next - begin);
      if (first) at_start = now;
      check(at_start, now, next - begin);
    }
    if (right()) std::this_thread::sleep_until(end);
    over_ = true;
    for (std::thread& thread : threads) thread.join();
    const State last = state();
    print(last, Clock::now() - begin);
    check(at_start, last, Clock::now() - begin);
    return right();
  }

 private:
  struct State {
    std::uint64_t unmaps = 0, changes = 0, transfers = 0, refused = 0, resident = 0, pinned = 0;
    std::size_t regions = 0, own_bytes = 0, contexts = 0;
    std::size_t heap = 0;        ///< bytes that malloc has, beside its mappings
    std::uint64_t believed = 0;  ///< to be in use, by the helper
    std::uint64_t helper_cpu_ns = 0, hits = 0;
  };

  bool right() const { return !::testing::UnitTest::GetInstance()->Failed(); }

  State state() {
    State now;
    now.unmaps = unmaps_;
    now.changes = changes_;
    now.transfers = transfers_;
    now.refused = refused_;
    now.resident = status_bytes({"VmRSS:"});
    now.pinned = status_bytes({"VmPin:", "VmLck:"});
    now.regions = ring_.domain().region_count();
    now.heap = ::mallinfo2().arena;
    now.own_bytes = ring_.domain().own_bytes();
    for (ThreadContext* context = all_threads(); context; context = context->next) ++now.contexts;
    const runlog::Counters counters = ring_.engine().counters().all();
    now.believed = counters.leave_pinned_bytes;
    now.helper_cpu_ns = counters.helper_cpu_ns;
    now.hits = counters.hits;
    return now;
  }

  void print(const State& now, Clock::duration since_begin) {
    std::printf(
        "%6lld s: %llu unmaps, %llu changes, %llu transfers compared, %llu refused, %llu hits; process %llu "
        "KiB, heap %zu KiB, pinned %llu KiB, %zu regions, registry %zu KiB, %zu contexts, believed in use "
        "%llu "
        "KiB, helper %.1f s\n",
        static_cast<long long>(std::chrono::duration_cast<seconds>(since_begin).count()),
        static_cast<unsigned long long>(now.unmaps), static_cast<unsigned long long>(now.changes),
        static_cast<unsigned long long>(now.transfers), static_cast<unsigned long long>(now.refused),
        static_cast<unsigned long long>(now.hits), static_cast<unsigned long long>(now.resident >> 10),
        now.heap >> 10, static_cast<unsigned long long>(now.pinned >> 10), now.regions, now.own_bytes >> 10,
        now.contexts, static_cast<unsigned long long>(now.believed >> 10),
        static_cast<double>(now.helper_cpu_ns) / 1e9);
    std::fflush(stdout);
  }

  void check(const State& before, const State& now, Clock::duration since_begin) {
    EXPECT_GT(now.unmaps, 0u);
    // The most regions at once vary a little.
    EXPECT_LE(now.own_bytes, before.own_bytes + (64 << 10)) << "the registry takes more and more";
    // And one for this thread; a new thread may come before its predecessor's is free.
    EXPECT_LE(now.contexts, 2 * settings_.threads + 1);
    // Freed blocks stay registered as long as malloc has their memory. No two regions begin at one page.
    const std::size_t most = busy_ + now.heap / page_size();
    EXPECT_LE(now.regions, idle_.size() + most);
    EXPECT_LE(now.pinned, (idle_.size() * kIdlePages + most * (kMostPages + 2)) * page_size());
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (since_begin >= kGrowthBelievedAfter) {
      EXPECT_LE(now.resident, before.resident + kMostGrowth) << "the process grows";
    }
#endif
    // Records that the helper has yet to see, of memory that is gone.
    const std::size_t records = settings_.threads * decltype(ThreadContext::ring)::capacity();
    EXPECT_LE(now.believed, (idle_.size() * kIdlePages + records * (kMostPages + 2)) * page_size());
    check_idle();
  }

  /// Untouched memory is still registered, and right.
  void check_idle() {
    Wire wire(kIdlePages * page_size());
    std::size_t lost = 0;
    for (std::size_t i = 0; i < idle_.size(); ++i) {
      lost += ring_.device().live(idle_[i]) != 1;
      const TransferLease lease = ring_.acquire(idle_[i]);
      ASSERT_TRUE(lease) << lease.error().message;
      ASSERT_EQ(ring_.device().send(lease.key(), idle_[i], wire, 0), 0);
      ASSERT_TRUE(holds(wire.as<std::uint64_t>(), idle_[i], i)) << "STALE: other contents were sent";
    }
    if (keeps_idle_) {
      EXPECT_EQ(lost, 0u) << "idle regions went";
    }
  }

  // ---- the threads ----

  /// One after another, so that a thread's remnants are seen as well.
  void live(unsigned number) {
    for (std::uint64_t generation = 0; !over_ && right(); ++generation)
      std::thread([&] { rage(generation * settings_.threads + number); }).join();
  }

  void rage(std::uint64_t seed) {
    std::minstd_rand random(static_cast<unsigned>(seed + 1));
    const Wire wire((kMostPages + 2) * page_size());
    const FileMemory file;
    LiveBlocks blocks;
    for (std::size_t round = 0; round < kRoundsOfThread && !over_; ++round) {
      const std::size_t pages = 1 + random() % kMostPages;
      const bool of_file = random() % 16 == 0;
      const Range memory = of_file ? file.map(pages) : map_pages(pages);
      TransferLease lease = use(memory, random, round, wire);
      // Leases mostly end before their memory changes or goes.
      if (random() % 8 != 0) lease.release();
      if (of_file || random() % 16 == 0) {
        if (of_file)
          file.cut(random());
        else
          change(memory, random());
        ++changes_;
        lease = use(memory, random, round, wire);
        if (random() % 8 != 0) lease.release();
      }
      unmap_somehow(memory, random);
      if (!kSanitized && random() % 16 == 0) use(blocks.replace(random()), random, round, wire);
    }
  }

  /// Writes to memory and mostly leases it; one in some is really transferred.
  TransferLease use(Range memory, std::minstd_rand& random, std::size_t round, const Wire& wire) {
    touch(memory, random() | 1);
    // Some memory is never transferred.
    TransferLease lease;
    if (random() % 4 != 0) lease = ring_.acquire(memory, Access::all, 1 + random() % 6);
    if (lease && round % kTransferredRounds == 0) transfer(lease, memory, wire);
    // The thread that has unmapped this address may still be in its call.
    if (lease.error()) {
      EXPECT_EQ(lease.error().code, EAGAIN) << lease.error().message;
      ++refused_;
    }
    return lease;
  }

  static void change(Range memory, unsigned way) {
    void* const at = reinterpret_cast<void*>(memory.begin);
    if (way % 3 == 0) {
      ::madvise(at, memory.bytes(), MADV_DONTNEED);
    } else if (way % 3 == 1) {
      ::mmap(at, memory.bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    } else {
      ::madvise(at, memory.bytes(), MADV_DONTFORK);
      ::madvise(at, memory.bytes(), MADV_DOFORK);
    }
  }

  /// At once, or by halves.
  void unmap_somehow(Range memory, std::minstd_rand& random) {
    const Range half{memory.begin + memory.pages() / 2 * page_size(), memory.end};
    if (random() % 8 == 0 && half.bytes() < memory.bytes()) {
      unmap(half);
      unmap({memory.begin, half.begin});
      ++unmaps_;
    } else {
      unmap(memory);
    }
    ++unmaps_;
  }

  /// A word of each page.
  static void touch(Range memory, std::uint64_t stamp) {
    for (Address page = memory.begin; page < memory.end; page += page_size())
      *reinterpret_cast<volatile std::uint64_t*>(page) = word_of(page, stamp);
  }

  void transfer(const TransferLease& lease, Range memory, const Wire& wire) {
    if (const int error = ring_.device().send(lease.key(), memory, wire, 0)) {
      ADD_FAILURE() << "not sent: " << std::strerror(error);
      return;
    }
    for (std::size_t at = 0; at < memory.bytes(); at += page_size()) {
      ASSERT_EQ(wire.as<std::uint64_t>()[at / sizeof(std::uint64_t)],
                *reinterpret_cast<const std::uint64_t*>(memory.begin + at))
          << "STALE: other contents were sent";
    }
    ++transfers_;
  }

  const Settings settings_;
  /// Most regions of the threads: those that each holds, lets go, or has left doomed since the last look, and
  /// those of blocks.
  const std::size_t busy_;
  TransferEngine ring_;
  std::vector<Range> idle_;
  bool keeps_idle_ = false;
  std::atomic<bool> over_{false};
  std::atomic<std::uint64_t> unmaps_{0}, changes_{0}, transfers_{0}, refused_{0};
};

Settings parse(int argc, char** argv) {
  Settings settings;
  const option names[] = {
      {"seconds", required_argument, nullptr, 's'}, {"threads", required_argument, nullptr, 't'},
      {"idle", required_argument, nullptr, 'i'},    {"report", required_argument, nullptr, 'r'},
      {"options", required_argument, nullptr, 'o'}, {}};
  const auto usage = [&] {
    std::fprintf(
        stderr,
        "usage: storm [--seconds N] [--threads N] [--idle REGIONS] [--report SECONDS] [--options TEXT]\n");
    std::exit(2);
  };
  for (int name; (name = ::getopt_long(argc, argv, "", names, nullptr)) != -1;) {
    if (name == 'o') {
      if (const Error error = parse_options(settings.options, optarg)) {
        std::fprintf(stderr, "storm: %s\n", error.message);
        std::exit(2);
      }
      continue;
    }
    const long number = name == '?' ? 0 : std::atol(optarg);
    if (number <= 0 && name != 'i') usage();
    if (name == 's') settings.time = seconds(number);
    if (name == 't') settings.threads = static_cast<unsigned>(number);
    if (name == 'i') settings.idle = static_cast<std::size_t>(std::max(number, 0L));
    if (name == 'r') settings.report = seconds(number);
  }
  return settings;
}

}  // namespace
}  // namespace pinion::test

int main(int argc, char** argv) {
  using namespace pinion::test;
  ::testing::InitGoogleTest(&argc, argv);
  const Settings settings = parse(argc, argv);
  if (!EngineDevice::available()) {
    std::puts(EngineDevice::kMissing);
    return 77;
  }
  const bool right = Storm(settings).run() && !::testing::UnitTest::GetInstance()->Failed();
  std::puts(right ? "nothing stale, nothing grown" : "FAILED");
  return right ? 0 : 1;
}
