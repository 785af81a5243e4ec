// A device that pins nothing and costs only virtual time, for the simulator and for tests: the real registry
// and retention run over it. It keeps the model's caps and its live registrations. Tests can make it refuse,
// and interrupt it in the middle of a registration. Any thread may register and deregister (one short
// mutex); a virtual clock belongs to one thread, so tests with several give none. Set up (fail_every,
// during_registration) before it is used.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "device/cap_use.h"
#include "device/device.h"
#include "device/model/cost_model.h"

namespace pinion {

class ModelDevice final : public Device {
 public:
  /// `clock` (may be null) is advanced by the cost of each call, in its translation entries or else pages; it
  /// outlives the device.
  explicit ModelDevice(CostModel nic, VirtualClock* clock = nullptr);

  /// Lets every k-th registration fail with `code`; 0: none.
  void fail_every(std::uint64_t k, int code);
  /// Calls `f` in the middle of every registration, without a lock: before the range is live and its time is
  /// spent.
  void during_registration(std::function<void(Range)> f);

  /// Lets `f` count the translation entries of pages; else it counts pages.
  void count_entries(std::function<std::size_t(Range)> f) { entries_ = std::move(f); }

  const char* name() const override { return "model"; }
  std::string description() const override;
  DeviceCapabilities capabilities() const override;
  Registration register_range(Range pages, Access access, Actor actor) override;
  Error deregister(const RegistrationKey& key, Actor actor) override;
  void abandon_after_fork() override;

  const CostModel& nic() const { return nic_; }

  /// Live registrations, the sum of their bytes (not the union), and whether `key` is one.
  std::size_t live_regions() const { return use_.regions(); }
  std::size_t live_bytes() const { return use_.bytes(); }
  bool is_live(const RegistrationKey& key) const;
  /// Whether any live registration overlaps `range`.
  bool overlaps_live(Range range) const;
  /// Calls so far that succeeded.
  std::uint64_t registrations() const;
  std::uint64_t deregistrations() const;

 private:
  struct Live {
    Range range;
    std::size_t entries;
  };

  const CostModel nic_;
  VirtualClock* const clock_;
  std::function<void(Range)> during_;
  std::uint64_t fail_every_ = 0;
  int fail_code_ = 0;
  std::function<std::size_t(Range)> entries_;
  CapUse use_;

  mutable Mutex mutex_;  ///< guards the clock too
  std::map<std::uint64_t, Live> live_ GUARDED_BY(mutex_);
  std::uint64_t attempts_ GUARDED_BY(mutex_) = 0;
  std::uint64_t registered_ GUARDED_BY(mutex_) = 0;
  std::uint64_t deregistered_ GUARDED_BY(mutex_) = 0;
  std::uint64_t abandoned_ GUARDED_BY(mutex_) = 0;  ///< handles up to here are from before a fork
};

}  // namespace pinion
