// `pinion bench prepare`: a whole heap registered ahead by pinion_prepare(), and the same by one acquire,
// faults included; and the delays of another thread's calls meanwhile.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bench/api.h"
#include "bench/bench.h"
#include "cli/system_files.h"

namespace pinion::cli {

namespace {

/// Nothing is let go: regions leave with their memory.
constexpr const char* kOptions = "retention=leave-pinned,device=pin,limit=0";
constexpr std::size_t kBuffer = 64 << 10;
constexpr std::size_t kHugepage = 2 << 20;

class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : bytes_(bytes),
        begin_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (begin_ == MAP_FAILED) throw Failure(fmt::format("no memory: {}", std::strerror(errno)));
    ::madvise(begin_, bytes, MADV_NOHUGEPAGE);
  }
  ~Memory() { ::munmap(begin_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  pinion_range range() const { return {begin_, bytes_}; }

 private:
  std::size_t bytes_;
  void* begin_;
};

class Lease {
 public:
  Lease(pinion_domain* domain, const pinion_range& range) {
    must(pinion_acquire(domain, range.address, range.bytes, PINION_ACCESS_WRITE, &lease_));
  }
  ~Lease() { (void)pinion_release(&lease_); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

 private:
  pinion_lease lease_ = PINION_LEASE_INIT;
};

/// Delays in us of each kind of call, in the order of their making.
using Delays = std::map<std::string, std::vector<double>>;

/// A thread that maps, registers, uses and unmaps small buffers, for as long as it lives.
class Meanwhile {
 public:
  /// It has made calls of each kind by the return.
  explicit Meanwhile(pinion_domain* domain) : domain_(domain), thread_([this] { work(); }) {
    began_.wait(false);
  }
  /// Ends it. Throws its failure.
  Delays end() {
    stop_.store(true, std::memory_order_relaxed);
    thread_.join();
    if (!failure_.empty()) throw Failure(failure_);
    return std::move(delays_);
  }
  ~Meanwhile() {
    stop_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) thread_.join();
  }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;

 private:
  template <class Call>
  void timed(const char* kind, Call&& call) {
    const Ticks begin = ticks_now();
    call();
    delays_[kind].push_back(static_cast<double>(ticks_now() - begin) * calibration().ns_per_tick / 1000);
  }
  void work() {
    try {
      const Memory hot(kBuffer);
      std::memset(const_cast<void*>(hot.range().address), 1, kBuffer);
      const Lease registered(domain_, hot.range());
      while (!stop_.load(std::memory_order_relaxed)) {
        void* fresh = nullptr;
        timed("mmap", [&] {
          fresh = ::mmap(nullptr, kBuffer, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        });
        if (fresh == MAP_FAILED) throw Failure(fmt::format("no memory: {}", std::strerror(errno)));
        std::memset(fresh, 1, kBuffer);
        timed("registration", [&] { const Lease lease(domain_, {fresh, kBuffer}); });
        timed("hit", [&] { const Lease lease(domain_, hot.range()); });
        timed("munmap", [&] { ::munmap(fresh, kBuffer); });
        began();
        // A program computes between its transfers.
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    } catch (const std::exception& failed) {
      failure_ = failed.what();
      began();
    }
  }
  void began() {
    if (!began_.exchange(true)) began_.notify_one();
  }

  pinion_domain* const domain_;
  std::atomic<bool> began_{false}, stop_{false};
  Delays delays_;        // the thread's, until it has ended
  std::string failure_;  // likewise
  std::thread thread_;
};

double percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

/// Values of one subject, one for each round.
struct Figures {
  std::vector<double> seconds;
  std::map<std::string, std::vector<double>> delays;  ///< by metric

  void add(Delays of_round) {
    for (auto& [kind, values] : of_round)
      for (const auto& [name, share] : {std::pair{"p50", 0.5}, {"p99", 0.99}, {"max", 1.0}})
        delays[fmt::format("{}_{}_us", kind, name)].push_back(percentile(values, share));
  }
};

double seconds_of(const std::function<void()>& work) {
  const Ticks begin = ticks_now();
  work();
  return static_cast<double>(ticks_now() - begin) * calibration().ns_per_tick * 1e-9;
}

void prepare(pinion_domain* domain, const pinion_range& heap, bool hugepages) {
  pinion_prepare_options options{};
  options.size = sizeof options;
  options.access = PINION_ACCESS_WRITE;
  options.hugepages = hugepages;
  pinion_preparation* preparation = nullptr;
  must(pinion_prepare(domain, &heap, 1, &options, &preparation));
  const int failed = pinion_preparation_wait(preparation, UINT64_MAX);
  const std::string why = failed ? pinion_last_error() : "";
  must(pinion_preparation_end(preparation));
  if (failed) throw Failure(why);
}

/// A virtual machine's host takes back memory that is free for seconds (free page reporting), and gives it
/// again at its next touch, 6 ms for 2 MiB. That is no part of a preparation, so the kernel gets the pages
/// that a subject will use right before it. Hugepages are taken where hugepages were freed.
void touch_and_free(std::size_t bytes, bool hugepages) {
  const Memory memory(bytes);
  void* const begin = const_cast<void*>(memory.range().address);
  if (hugepages) ::madvise(begin, bytes, MADV_HUGEPAGE);
  std::memset(begin, 1, bytes);
}

/// Half of the free memory at most.
std::size_t heap_bytes() {
  const std::size_t available = std::strtoull(field_of("/proc/meminfo", "MemAvailable").c_str(), nullptr, 10)
                                << 10;
  std::size_t bytes = std::size_t{8} << 30;
  while (bytes > kHugepage && bytes > available / 2) bytes /= 2;
  return bytes;
}

void measure(Bench& bench, std::size_t bytes) {
  pinion_domain* domain = nullptr;
  must(pinion_start(kOptions));
  must(pinion_domain_open(nullptr, nullptr, &domain));
  double last_seconds = 0;
  const struct {
    const char* name;
    bool hugepages;
    std::function<void(const pinion_range&)> work;
  } subjects[] = {
      {"pinion", false, [&](const pinion_range& heap) { prepare(domain, heap, false); }},
      {"pinion-hugepages", true, [&](const pinion_range& heap) { prepare(domain, heap, true); }},
      {"one-registration", false, [&](const pinion_range& heap) { const Lease lease(domain, heap); }},
      {"computing", false,
       [&](const pinion_range&) {
         const Ticks end = ticks_now() + static_cast<Ticks>(last_seconds * 1e9 / calibration().ns_per_tick);
         while (ticks_now() < end) {
         }
       }},
  };
  std::map<std::string, Figures> figures;
  for (unsigned round = 0; round < bench.rounds(); ++round)
    for (const auto& [subject, hugepages, work] : subjects) {
      bench.step(fmt::format("{}, round {} of {}: {}", size_name(bytes), round + 1, bench.rounds(), subject));
      touch_and_free(bytes, hugepages);
      const Memory heap(bytes);
      Meanwhile meanwhile(domain);
      last_seconds = seconds_of([&, &work = work] { work(heap.range()); });
      Figures& of = figures[subject];
      of.seconds.push_back(last_seconds);
      of.add(meanwhile.end());
    }
  must(pinion_domain_close(domain));
  must(pinion_stop());
  const std::string name = size_name(bytes);
  for (const auto& [subject, hugepages, work] : subjects)
    bench.add(name, subject, "seconds", "s", figures[subject].seconds);
  for (const auto& [subject, hugepages, work] : subjects)
    for (const auto& [metric, values] : figures[subject].delays)
      bench.add(name, subject, metric, "us", values);
}

void run(Bench& bench) {
  const std::vector<std::size_t>& sizes = bench.options().sizes;
  for (const std::size_t bytes : sizes.empty() ? std::vector{heap_bytes()} : sizes) measure(bench, bytes);
  bench.note(
      "Untouched memory, pinned by the kernel (device pin). *_us: calls of another thread meanwhile, 64 KiB "
      "each, some 4,000 a second; computing: beside a thread that only computes, for as long as the one "
      "registration before it took.");
}

const BenchRegistration registration{"prepare", "Preparing a heap, and calls meanwhile", run, kTakesSizes, 3};

}  // namespace

}  // namespace pinion::cli
