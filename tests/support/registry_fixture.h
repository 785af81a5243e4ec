// A domain over the fake device, and the few steps that tests of the registry repeat.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "fake_device.h"
#include "registry/blocking.h"
#include "registry/domain.h"

namespace pinion::test {

/// Pages of an imaginary memory far from address 0.
inline Range pages(std::size_t begin, std::size_t end) {
  constexpr Address kBase = Address{1} << 40;
  return {kBase + begin * page_size(), kBase + end * page_size()};
}
inline std::size_t pages_bytes(std::size_t n) { return n * page_size(); }

/// Receives each change of the domain's size and checks it against the limit at every moment.
class LimitWitness final : public RegisteredListener {
 public:
  explicit LimitWitness(std::uint64_t limit) : limit_(limit) {}
  void registered_changed(Time, Time, std::int64_t bytes, int regions) override {
    bytes_ += bytes;
    regions_ += regions;
    EXPECT_LE(static_cast<std::uint64_t>(bytes_), limit_);
    EXPECT_GE(bytes_, 0);
    EXPECT_GE(regions_, 0);
  }
  std::int64_t bytes() const { return bytes_; }
  std::int64_t regions() const { return regions_; }

 private:
  const std::uint64_t limit_;
  std::int64_t bytes_ = 0;
  std::int64_t regions_ = 0;
};

class RegistryTest : public ::testing::Test {
 protected:
  FakeDevice device;
  Brackets brackets;
  VirtualClock clock;
  std::unique_ptr<Budget> budget;
  std::unique_ptr<LimitWitness> witness;
  std::unique_ptr<Domain> domain;
  RecentRegions recent;

  RegistryTest() { limit(UINT64_MAX, UINT64_MAX); }

  /// Starts over with these limits.
  void limit(std::uint64_t bytes, std::uint64_t regions = UINT64_MAX) {
    domain.reset();
    recent = {};
    budget = std::make_unique<Budget>(Limits{bytes, regions, "--limit"});
    witness = std::make_unique<LimitWitness>(bytes);
    domain = std::make_unique<Domain>(device, *budget, brackets, clock, witness.get());
  }

  /// Everything is retired at the end, and nothing is left anywhere.
  void TearDown() override {
    retire_all(*domain, Actor::helper, [](auto&&...) {});
    EXPECT_EQ(device.live(), 0u);
    EXPECT_EQ(device.bytes(), 0u);
    EXPECT_EQ(budget->bytes(), 0u);
    EXPECT_EQ(budget->regions(), 0u);
    EXPECT_EQ(domain->registered_bytes(), 0u);
    EXPECT_EQ(domain->region_count(), 0u);
    EXPECT_EQ(witness->bytes(), 0);
    EXPECT_EQ(witness->regions(), 0);
  }

  Region* hit(Range range, Access access = Access::read) { return domain->try_hit(range, access, recent); }

  /// An acquire that has not begun.
  Acquisition ticket(Range range, Access access = Access::read) {
    return {*domain, {.pages = domain->unit_of(range), .access = access}};
  }
  AcquireStep run(Acquisition& ticket) { return run_blocking(ticket, Actor::application); }
  /// A lease, by hit or by registering; the range is then registered with those rights.
  Region* acquire(Range range, Access access = Access::read) {
    if (Region* region = hit(range, access)) return region;
    auto miss = ticket(range, access);
    if (run(miss) != AcquireStep::leased) return nullptr;
    EXPECT_TRUE(device.serves(miss.result().region->key, range, access));
    return miss.result().region;
  }
  /// Registered and idle; used at `last_use`.
  Region* idle(Range range, Ticks last_use = 0, Access access = Access::read) {
    Region* region = acquire(range, access);
    EXPECT_NE(region, nullptr);
    if (!region) return nullptr;
    region->last_use.store(last_use);
    domain->release(region);
    return region;
  }
  /// Adds an idle region that is predicted to be used at `next_use`.
  void expected(Range range, Ticks last_use, Time next_use) {
    Region* region = idle(range, last_use);
    domain->expect({region, region->generation()}, next_use);
  }
  bool hits(Range range, Access access = Access::read) {
    Region* region = hit(range, access);
    if (region) domain->release(region);
    return region != nullptr;
  }
  /// A memory event as the hooks report it.
  void change(Range range) {
    brackets.open(range);
    domain->doom(range);
    brackets.close(range);
  }
  std::size_t reap() {
    std::size_t n = 0;
    for (; Region* region = domain->begin_reap(); ++n) retire_claimed(*domain, region, Actor::helper);
    return n;
  }
};

}  // namespace pinion::test
