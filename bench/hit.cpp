// `pinion bench hit`: a hit and its release, beside UCX's cache and beside floors that no cache can go below.
#include <thread>
#include <unordered_map>

#include "bench/bench.h"
#include "bench/peer_caches.h"
#include "bench/ranges.h"

namespace pinion::cli {

namespace {

constexpr std::size_t kSteps = 200'000;

/// The figure of many steps: the best batch of one thread alone, the mean beside other threads, since in
/// their best batch the others would rest.
enum class Take { best, mean };

template <class Step>
double taken_ns(Take take, std::size_t steps, Step&& step) {
  return take == Take::best ? best_ns_a_step(steps, step) : ns_a_step(steps, step);
}

double pinion_ns(BenchDomain& bench, const std::vector<Range>& ranges,
                 const std::vector<std::uint32_t>& order, Take take) {
  RecentRegions recent;
  return taken_ns(take, order.size(), [&](std::size_t i) {
    Region* region = bench.domain.try_hit(ranges[order[i]], Access::write, recent);
    bench.domain.release(region);
  });
}

double ucx_ns(PeerCache& cache, const std::vector<Range>& ranges, const std::vector<std::uint32_t>& order,
              Take take) {
  return taken_ns(take, order.size(), [&](std::size_t i) { cache.get_and_put(ranges[order[i]]); });
}

double hash_ns(const std::unordered_map<Address, std::uint32_t>& table, const std::vector<Range>& ranges,
               const std::vector<std::uint32_t>& order) {
  std::uint64_t sum = 0;
  const double ns =
      best_ns_a_step(order.size(), [&](std::size_t i) { sum += table.find(ranges[order[i]].begin)->second; });
  asm volatile("" : : "r"(sum));
  return ns;
}

void random_ranges(Bench& bench, PeerCache* ucx, const char* name, std::size_t count) {
  BenchRanges memory(count);
  BenchDomain own;
  own.register_all(memory.ranges);
  std::unordered_map<Address, std::uint32_t> table;
  for (std::size_t i = 0; i < count; ++i) table[memory.ranges[i].begin] = static_cast<std::uint32_t>(i);
  const auto order = BenchRanges::order(count, kSteps, 1);
  std::vector<BenchSubject> subjects{
      {"pinion", [&] { return pinion_ns(own, memory.ranges, order, Take::best); }},
      {"hash", [&] { return hash_ns(table, memory.ranges, order); }},
  };
  if (count == 1) subjects.push_back({"atomic-pair", [] { return atomic_pair_ns(kSteps); }});
  if (ucx) {
    for (const Range& range : memory.ranges) ucx->get_and_put(range);
    subjects.push_back({"ucx", [&] { return ucx_ns(*ucx, memory.ranges, order, Take::best); }});
  }
  bench.compare(name, "ns", "ns", subjects);
}

/// The time of two threads doing `body(thread number)` at once, as the mean of the two.
template <class Body>
double two_threads_ns(Body&& body) {
  double ns[2] = {0, 0};
  std::atomic<int> ready{0};
  const auto run = [&](int who) {
    ready.fetch_add(1);
    while (ready.load() != 2) StdAtomics::relax();
    ns[who] = body(who);
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  return (ns[0] + ns[1]) / 2;
}

void two_threads(Bench& bench, PeerCache* ucx, const char* name, bool same) {
  BenchRanges memory(2);
  BenchDomain own;
  own.register_all(memory.ranges);
  const auto order_of = [&](int who) {
    return std::vector<std::uint32_t>(kSteps, same ? 0u : static_cast<std::uint32_t>(who));
  };
  std::vector<BenchSubject> subjects{{"pinion", [&] {
                                        return two_threads_ns([&](int who) {
                                          return pinion_ns(own, memory.ranges, order_of(who), Take::mean);
                                        });
                                      }}};
  if (ucx) {
    for (const Range& range : memory.ranges) ucx->get_and_put(range);
    subjects.push_back({"ucx", [&] {
                          return two_threads_ns([&](int who) {
                            return ucx_ns(*ucx, memory.ranges, order_of(who), Take::mean);
                          });
                        }});
  }
  bench.compare(name, "ns", "ns", subjects);
}

/// A second thread does `disturb()` over and over while the hits are measured.
template <class Disturb, class Measure>
double disturbed_ns(Disturb&& disturb, Measure&& measure) {
  std::atomic<bool> stop{false};
  std::atomic<bool> running{false};
  std::thread other([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      disturb();
      running.store(true, std::memory_order_release);
    }
  });
  while (!running.load(std::memory_order_acquire)) StdAtomics::relax();
  const double ns = measure();
  stop.store(true, std::memory_order_relaxed);
  other.join();
  return ns;
}

/// Registration takes 5 ms here: its effect on hits of other ranges.
class SlowDevice final : public Device {
 public:
  const char* name() const override { return "slow"; }
  std::string description() const override { return "takes 5 ms to register"; }
  DeviceCapabilities capabilities() const override { return {}; }
  Registration register_range(Range range, Access, Actor) override {
    if (range.bytes() > BenchRanges::kBytes) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return {{}, {}, Access::all};
  }
  Error deregister(const RegistrationKey&, Actor) override { return {}; }
  void abandon_after_fork() override {}
};

void during_slow_registration(Bench& bench) {
  BenchRanges memory(1024);
  SlowDevice device;
  RealClock clock;
  Brackets brackets;
  Budget budget{Limits{}};
  Domain domain(device, budget, brackets, clock, nullptr);
  const auto register_one = [&](Range range) {
    Acquisition acquisition(domain, {.pages = range});
    static_cast<void>(run_blocking(acquisition, Actor::application));  // the device refuses none
    Region* const region = acquisition.result().region;
    domain.release(region);
    return RegionRef{region, region->generation()};
  };
  for (const Range& range : memory.ranges) register_one(range);
  const Address far = memory.ranges.back().end + (Address{1} << 30);
  const auto order = BenchRanges::order(1024, kSteps, 2);
  bench.compare(
      "during-slow-registration", "ns", "ns",
      {{"pinion", [&] {
          return disturbed_ns(
              [&] {
                if (Region* region = domain.begin_retire(register_one({far, far + (Address{1} << 20)})))
                  retire_claimed(domain, region, Actor::application);
              },
              [&] {
                RecentRegions recent;
                return ns_a_step(order.size(), [&](std::size_t i) {
                  domain.release(domain.try_hit(memory.ranges[order[i]], Access::write, recent));
                });
              });
        }}});
}

void during_unmaps(Bench& bench, PeerCache* ucx) {
  BenchRanges memory(1024);
  BenchDomain own;
  own.register_all(memory.ranges);
  const auto order = BenchRanges::order(1024, kSteps, 3);
  // Unrelated memory is mapped and unmapped as fast as it goes. UCX learns of it by its own hooks; ours are
  // called as the engine's hook calls them.
  const auto unmap = [&](bool with_brackets) {
    constexpr std::size_t kBytes = 1 << 20;
    void* p = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const Range range = Range::of(p, kBytes);
    if (with_brackets) {
      own.brackets.open(range);
      own.domain.doom(range);
    }
    ::munmap(p, kBytes);
    if (with_brackets) own.brackets.close(range);
  };
  std::vector<BenchSubject> subjects{{"pinion", [&] {
                                        return disturbed_ns(
                                            [&] { unmap(true); },
                                            [&] { return pinion_ns(own, memory.ranges, order, Take::mean); });
                                      }}};
  if (ucx) {
    for (const Range& range : memory.ranges) ucx->get_and_put(range);
    subjects.push_back({"ucx", [&] {
                          return disturbed_ns([&] { unmap(false); },
                                              [&] { return ucx_ns(*ucx, memory.ranges, order, Take::mean); });
                        }});
  }
  bench.compare("during-unmaps", "ns", "ns", subjects);
}

void run(Bench& bench) {
  std::string reason;
  const auto ucx = open_ucx_cache(reason);
  if (!ucx) bench.note("ucx was not measured: " + reason);
  bench.note(
      "One get and its release, the driver's calls empty. hash: the look-up in std::unordered_map alone. A "
      "sample "
      "is the best of 40 batches.");
  random_ranges(bench, ucx.get(), "one-hot-range", 1);
  random_ranges(bench, ucx.get(), "random-16", 16);
  random_ranges(bench, ucx.get(), "random-1k", 1 << 10);
  random_ranges(bench, ucx.get(), "random-64k", 1 << 16);
  random_ranges(bench, ucx.get(), "random-1m", 1 << 20);
  two_threads(bench, ucx.get(), "two-threads-own", false);
  two_threads(bench, ucx.get(), "two-threads-same", true);
  during_slow_registration(bench);
  during_unmaps(bench, ucx.get());
}

const BenchRegistration registration{"hit", "A hit on a registered range and its release", run};

}  // namespace

}  // namespace pinion::cli
