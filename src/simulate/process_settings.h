// The conditions of one simulated process. Plain values; the functions are called in the order of events.
#pragma once

#include <cstdint>
#include <functional>

#include "base/clock.h"
#include "device/device.h"
#include "device/model/cost_model.h"
#include "node/node_share.h"
#include "retention/costs.h"
#include "retention/retention_options.h"
#include "simulate/transparent_hugepages.h"

namespace pinion::simulate {

struct ProcessSettings {
  RetentionKind retention = RetentionKind::helper;
  CostModel nic;
  std::uint64_t limit = UINT64_MAX;
  std::uint64_t limit_regions = UINT64_MAX;
  /// Shares out a limit of the node; the process has joined it, and it outlives the process.
  node::NodeTable* room = nullptr;
  std::uint64_t look_every = 100;  ///< acquires from one look at the others in the room to the next
  std::uint64_t lru_bytes = 64 << 20;
  TimeBudget::Settings time_budget = {.core_idle = true};
  MinimumGain::Settings minimum_gain = {};
  /// CPU of the helper beside its device calls: of a wake-up, and of a record learnt from.
  struct HelperCpu {
    Duration wake = 0, record = 0;
  } helper_cpu = {};
  HugepageModel hugepages = {};
  /// The application's threads stand still for so much of each second of the helper's work; 0: it has a core
  /// of its own.
  double delays_threads = 0;
  /// Longest sleep of the helper while communication is dense. 0: it watches, and sees a record at once.
  Duration poll = kMillisecond;
  std::size_t ring = 256;          ///< records that wait for the helper at most; further ones are lost
  double memcpy_bytes_per_ns = 0;  ///< of a bounce buffer; 0: free
  Time start = kSecond;
  /// Returns the lateness of each timed wake-up of the helper.
  std::function<Duration()> wake_latency = [] { return Duration{0}; };
  /// Returns when a helper really runs that would run at a time, on a core that it shares. Empty: at that
  /// time.
  std::function<Time(Time)> turn_after = {};
  /// Returns the length of a device call, `modelled` by the device. Empty: just that.
  std::function<Duration(Actor, bool registration, Duration modelled)> call_time = {};
};

}  // namespace pinion::simulate
