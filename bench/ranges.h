// The common parts of the benches of the registration cache: a device whose calls are empty, and ranges as
// programs have them.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <vector>

#include "base/clock.h"
#include "device/device.h"
#include "registry/blocking.h"

namespace pinion::cli {

/// Registers nothing at once: the rest is the cost of the cache itself.
class EmptyDevice final : public Device {
 public:
  const char* name() const override { return "empty"; }
  std::string description() const override { return "registers nothing"; }
  DeviceCapabilities capabilities() const override { return {}; }
  Registration register_range(Range, Access, Actor) override { return {{}, {}, Access::all}; }
  Error deregister(const RegistrationKey&, Actor) override { return {}; }
  void abandon_after_fork() override {}
};

/// A domain with everything it stands on.
struct BenchDomain {
  EmptyDevice device;
  RealClock clock;
  Brackets brackets;
  Budget budget{Limits{}};
  Domain domain{device, budget, brackets, clock, nullptr};

  void register_all(const std::vector<Range>& ranges) {
    for (const Range& range : ranges) {
      Acquisition acquisition(domain, {.pages = range});
      static_cast<void>(run_blocking(acquisition, Actor::application));  // the device refuses none
      domain.release(acquisition.result().region);
    }
  }
};

/// Ranges in reserved memory that is never touched, with a page or more between two.
class BenchRanges {
 public:
  enum class Layout {
    aligned,  ///< whole pages, 64 KB each
    real,     ///< as allocators give them: multiples of 16 bytes as addresses, any size from 32 KB up
  };

  explicit BenchRanges(std::size_t count, Layout layout = Layout::aligned) {
    const std::size_t stride = kBytes + (layout == Layout::aligned ? 1 : 2) * page_size();
    bytes_ = count * stride;
    memory_ =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    std::mt19937 random(1);
    for (std::size_t i = 0; i < count; ++i) {
      Address begin = reinterpret_cast<Address>(memory_) + i * stride;
      std::size_t bytes = kBytes;
      if (layout == Layout::real) {
        begin += 16 + random() % (page_size() / 16) * 16;
        bytes = kBytes / 2 + random() % (kBytes / 2);
      }
      ranges.push_back({begin, begin + bytes});
    }
  }
  ~BenchRanges() { ::munmap(memory_, bytes_); }
  BenchRanges(const BenchRanges&) = delete;
  BenchRanges& operator=(const BenchRanges&) = delete;

  /// Which range is asked for in which step: the same for every subject.
  static std::vector<std::uint32_t> order(std::size_t count, std::size_t steps, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::uint32_t> list(steps);
    for (auto& index : list) index = static_cast<std::uint32_t>(random() % count);
    return list;
  }

  static constexpr std::size_t kBytes = 64 << 10;
  std::vector<Range> ranges;

 private:
  void* memory_;
  std::size_t bytes_;
};

/// Runs `step(i)` for i in [0, steps) and returns ns a step.
template <class Step>
double ns_a_step(std::size_t steps, Step&& step) {
  const Ticks begin = ticks_now();
  for (std::size_t i = 0; i < steps; ++i) step(i);
  return static_cast<double>(ticks_now() - begin) * calibration().ns_per_tick / static_cast<double>(steps);
}

/// Measures 40 batches, of which the best counts: for figures that are compared as ratios, on machines
/// that have other work.
template <class Step>
double best_ns_a_step(std::size_t steps, Step&& step) {
  constexpr std::size_t kBatches = 40;
  double best = 0;
  for (std::size_t batch = 0; batch < kBatches; ++batch) {
    const std::size_t first = steps * batch / kBatches, end = steps * (batch + 1) / kBatches;
    const double ns = ns_a_step(end - first, [&](std::size_t i) { step(first + i); });
    best = batch == 0 ? ns : std::min(best, ns);
  }
  return best;
}

/// The floor of a lease: an uncontended locked addition and subtraction.
inline double atomic_pair_ns(std::size_t steps) {
  static std::atomic<std::uint64_t> word{0};
  return best_ns_a_step(steps, [](std::size_t) {
    word.fetch_add(1, std::memory_order_acquire);
    word.fetch_sub(1, std::memory_order_release);
  });
}

}  // namespace pinion::cli
