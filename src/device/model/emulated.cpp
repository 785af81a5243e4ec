#include "device/model/emulated.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/atomics.h"
#include "base/preemption.h"
#include "device/cap_use.h"
#include "device/handle_table.h"
#include "device/translation.h"

namespace pinion {

namespace {

/// The stricter of two caps, of which 0 is none.
std::size_t least_cap(std::size_t a, std::size_t b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

/// A program whose core is busy loses about this to a thread that sleeps there and wakes: two switches and an
/// interrupt (evidence-measured.md).
constexpr Duration kSleepCosts = 30 * kMicrosecond;

struct Start {
  Ticks ticks = ticks_now();
  Time time = monotonic_now();
};

void sleep_until(Time time) {
  timespec until{};
  until.tv_sec = static_cast<time_t>(time / kSecond);
  until.tv_nsec = static_cast<long>(time % kSecond);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

class EmulatedDevice final : public Device {
 public:
  EmulatedDevice(std::unique_ptr<Device> pins, CostModel nic)
      : pins_(std::move(pins)), nic_(std::move(nic)), state_(std::make_unique<State>(nic_, 1)) {
    calibration();  // measured here, ahead of the first registration
  }

  ~EmulatedDevice() override {
    // The pins end with their device, also if one cannot be undone.
    while (const auto region = state_->table.take_any())
      static_cast<void>(pins_->deregister(region->key, Actor::application));
  }

  const char* name() const override { return "emulated"; }

  std::string description() const override {
    return pins_->description() + "; registration lasts as modelled for NIC '" + nic_.name + "'";
  }

  /// Its translation entries have every size, as those of ConnectX.
  DeviceCapabilities capabilities() const override {
    DeviceCapabilities capabilities = pins_->capabilities();
    capabilities.spends_modelled_time = true;
    capabilities.page_sizes = kPageSizes;
    const DeviceCaps pins = capabilities.caps;
    capabilities.caps = {least_cap(pins.max_regions, nic_.caps.max_regions),
                         least_cap(pins.max_region_bytes, nic_.caps.max_region_bytes),
                         least_cap(pins.max_bytes, nic_.caps.max_bytes)};
    return capabilities;
  }

  Registration register_range(Range pages, Access access, Actor actor) override {
    const Start start;
    if (Error error = state_->use.take(pages.bytes())) return {error, {}, {}};
    Registration registration = pins_->register_range(pages, access, actor);
    if (registration.error) {
      state_->use.give(pages.bytes());
      return registration;
    }
    registration.entries = translation_entries(pages, kPageSizes, state_->files);
    registration.key.remote_base = pages.begin;  // a NIC's peers use the addresses
    registration.key.handle = state_->table.add({registration.key, pages.bytes(), registration.entries});
    registration.overslept = last(start, nic_.register_cost(registration.entries), actor);
    return registration;
  }

  Error deregister(const RegistrationKey& key, Actor actor) override {
    const Start start;
    const auto region = state_->table.take(key.handle);
    if (!region) return {};
    if (Error error = pins_->deregister(region->key, actor)) {
      state_->table.restore(key.handle, *region);
      return error;
    }
    last(start, nic_.deregister_cost(region->entries), actor);
    state_->use.give(region->bytes);
    return {};
  }

  void abandon_after_fork() override {
    pins_->abandon_after_fork();
    // Leaked on purpose: a thread that is missing here may have been in the middle of it.
    State* const parents = state_.release();
    state_ = std::make_unique<State>(nic_, parents->table.next_after_fork());
  }

  double modelled_busy_seconds() const override {
    return static_cast<double>(calibration().to_duration(busy_.load(std::memory_order_relaxed))) / kSecond;
  }

  Duration least_time(bool registration, std::uint32_t entries) const override {
    return registration ? nic_.register_cost(entries) : nic_.deregister_cost(entries);
  }

  double modelled_sleep_seconds() const override {
    return static_cast<double>(slept_.load(std::memory_order_relaxed)) / kSecond;
  }

 private:
  static constexpr std::uint64_t kPageSizes = ~std::uint64_t{0};

  struct Region {
    RegistrationKey key;  ///< the inner device's
    std::size_t bytes;
    std::size_t entries;
  };
  struct State {
    State(const CostModel& nic, std::uint64_t first_handle)
        : use("NIC '" + nic.name + "'", nic.caps), table(first_handle) {}
    CapUse use;
    HandleTable<Region> table;
    PageFiles files;
  };

  /// Makes the call that began at `start` last `cost` in all. By how much it slept beyond.
  Duration last(const Start& start, Duration cost, Actor actor) {
    const Duration rest = start.time + cost - monotonic_now();
    if (actor == Actor::helper && rest > kSleepCosts) {
      slept_.fetch_add(rest, std::memory_order_relaxed);
      sleep_until(start.time + cost);
      return lost_waking(monotonic_now() - start.time - cost);
    }
    const Ticks begin = ticks_now();
    const Ticks length = calibration().to_ticks(cost);
    if (begin - start.ticks >= length) return 0;
    Ticks now = begin;
    for (; now - start.ticks < length; now = ticks_now()) StdAtomics::relax();
    if (actor == Actor::application) busy_.fetch_add(now - begin, std::memory_order_relaxed);
    return 0;
  }

  const std::unique_ptr<Device> pins_;
  const CostModel nic_;
  std::unique_ptr<State> state_;
  std::atomic<Ticks> busy_{0};
  std::atomic<Duration> slept_{0};
};

}  // namespace

std::unique_ptr<Device> make_emulated_device(std::unique_ptr<Device> pins, CostModel nic) {
  return std::make_unique<EmulatedDevice>(std::move(pins), std::move(nic));
}

}  // namespace pinion
