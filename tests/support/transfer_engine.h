// The process's engine with a domain on a device that really transfers, and the common steps of tests by
// contents: leases, filling memory, comparing received data. Any thread may lease and transfer.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "monitor/memory_events.h"
#include "process/engine.h"
#include "registry/blocking.h"
#include "support/memory_contents.h"
#ifdef PINION_TEST_OVER_VERBS  // in tests/softroce
#include "softroce/verbs_transfer_device.h"
#else
#include "ring_device.h"
#endif

namespace pinion::test {

#ifdef PINION_TEST_OVER_VERBS
using EngineDevice = VerbsTransferDevice;
#else
using EngineDevice = RingDevice;
#endif

// ---- contents ----

/// Puts the contents of a fill(memory, stamp) on the wire.
inline void fill_wire(const Wire& wire, Range memory, std::uint64_t stamp) {
  for (Address a = memory.begin; a < memory.end; a += sizeof stamp)
    wire.as<std::uint64_t>()[(a - memory.begin) / sizeof stamp] = word_of(a, stamp);
}

// ---- engine ----

/// A lease in the domain on that device, from the constructor to release().
class TransferLease {
 public:
  TransferLease() = default;
  TransferLease(LeasePath& leases, int domain, Range range, Access access, CallSite site) : leases_(&leases) {
    ThreadContext& thread = *this_thread();
    const CallPoint call{ticks_now(), site, CallKind::api};
    if (!leases.lease(thread, domain, call, range, access, transfer_, Refusal::report, &error_))
      leases_ = nullptr;
  }
  TransferLease(TransferLease&& other) noexcept { *this = std::move(other); }
  TransferLease& operator=(TransferLease&& other) noexcept {
    release();
    leases_ = std::exchange(other.leases_, nullptr);
    transfer_ = other.transfer_;
    error_ = other.error_;
    return *this;
  }
  ~TransferLease() { release(); }

  explicit operator bool() const { return leases_; }
  const Error& error() const { return error_; }
  RegistrationKey key() const { return transfer_.region()->key; }
  void release() {
    if (leases_) leases_->release(*this_thread(), transfer_);
    leases_ = nullptr;
  }

 private:
  LeasePath* leases_ = nullptr;
  Transfer transfer_;
  Error error_;
};

class TransferEngine {
 public:
  explicit TransferEngine(const Options& options) {
    if (const Error error = Engine::join(options, {}, true)) {
      ADD_FAILURE() << error.message;
      std::abort();
    }
    engine_ = Engine::running();
    auto device = std::make_unique<EngineDevice>();
    device_ = device.get();
    Error error;
    domain_ = engine_->domains().add(std::move(device), error);
    EXPECT_FALSE(error) << error.message;
  }
  ~TransferEngine() { EXPECT_FALSE(Engine::leave()); }
  TransferEngine(const TransferEngine&) = delete;
  TransferEngine& operator=(const TransferEngine&) = delete;

  static Options options(RetentionKind retention) {
    Options options;
    options.retention = retention;
    options.minimum_gain = 0;
    return options;
  }

  Engine& engine() { return *engine_; }
  EngineDevice& device() { return *device_; }
  Domain& domain() { return engine_->domains().domain(domain_); }
  int domain_number() const { return domain_; }
  runlog::Counters counters() { return engine_->counters().of(domain_); }

  TransferLease acquire(Range range, Access access = Access::all, CallSite site = 1) {
    return {engine_->lease_path(), domain_, range, access, site};
  }

  /// Ends every registration that no lease is out on.
  void let_go() {
    retire_all(domain(), Actor::application, [](auto&&...) {});
  }

  /// Uses `range` once, as the latest of several uses `interval` apart. The earlier ones are made up: their
  /// records are written here, with times in the past. So the helper's lesson is independent of this thread's
  /// scheduling. Only for a thread that has used nothing else, and memory that is new to the helper.
  void use_as_if_periodic(Range range, Duration interval, CallSite site) {
    constexpr int kEarlierUses = 8;
    ThreadContext& thread = *this_thread();
    Transfer transfer;
    Error error;
    const CallPoint call{ticks_now(), site, CallKind::api};
    const bool leased = engine_->lease_path().lease(thread, domain_, call, range, Access::all, transfer,
                                                    Refusal::report, &error);
    ASSERT_TRUE(leased) << error.message;
    Record earlier = transfer.record;
    earlier.wait = 0;
    earlier.outcome = runlog::Outcome::hit;
    for (int use = kEarlierUses; use > 0; --use) {
      earlier.begin = earlier.end = transfer.record.begin - calibration().to_ticks(use * interval);
      thread.ring.push(earlier);
    }
    engine_->lease_path().release(thread, transfer);
  }

  /// Whether registrations are kept beyond their leases: false where some memory events go unseen, and each
  /// release lets go at once. (The helper may let go as well, in its own time.)
  bool keeps() {
    alignas(64) static std::byte memory[64];
    const std::size_t before = device_->deregistrations(Actor::application);
    acquire(Range::of(memory, sizeof memory)).release();
    return device_->deregistrations(Actor::application) == before;
  }

 private:
  Engine* engine_;
  EngineDevice* device_;
  int domain_;
};

/// Whether the engine's memory can be sent and received: filled contents arrive on the wire, and contents
/// from the wire arrive in memory. Leaves another fill() behind.
inline void expect_transfers(TransferEngine& engine, const TransferLease& lease, const Wire& wire,
                             Range memory, std::uint64_t stamp) {
  ASSERT_TRUE(lease) << lease.error().message;
  ASSERT_TRUE(holds(memory, stamp)) << "the test itself lost the contents";
  std::memset(wire.data(), 0, memory.bytes());
  ASSERT_EQ(engine.device().send(lease.key(), memory, wire, 0), 0);
  EXPECT_TRUE(holds(wire.as<std::uint64_t>(), memory, stamp)) << "STALE: other contents were sent";
  fill_wire(wire, memory, ~stamp);
  ASSERT_EQ(engine.device().receive(lease.key(), memory, wire, 0), 0);
  EXPECT_TRUE(holds(memory, ~stamp)) << "STALE: what was received went elsewhere";
}

}  // namespace pinion::test
