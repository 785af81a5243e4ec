// A device that refuses, and deregistrations that fail.

#include <gtest/gtest.h>

#include <vector>

#include "fixture.h"

namespace pinion::domain_test {
namespace {

// ---- failures of the device ----

TEST_F(RegistryTest, OnlyWhatIsRegisteredIsCounted) {
  device.refuse = [](Range range, Access) { return range.bytes() > pages_bytes(4) ? EFAULT : 0; };
  class Peak final : public RegisteredListener {
   public:
    void registered_changed(Time now, Time since, std::int64_t change, int) override {
      bytes += change;
      most = std::max(most, bytes);
      registering += now - since;
    }
    std::int64_t bytes = 0, most = 0;
    Duration registering = 0;
  } peak;
  Domain counted(device, *budget, brackets, clock, &peak);
  const auto run = [&](Range range) {
    Acquisition ticket(counted, {.pages = range});
    const Step done = run_blocking(ticket, Actor::application);
    return std::pair(done, ticket.result().region);
  };
  EXPECT_EQ(run(pages(0, 1000)).first, Step::refused);
  EXPECT_EQ(peak.most, 0) << "it was asked for and never registered";
  EXPECT_EQ(counted.registered_bytes(), 0u);
  const auto slow = device.refuse;
  device.refuse = [&](Range range, Access access) {
    clock.advance(kMillisecond);
    EXPECT_EQ(counted.registered_bytes(), 0u);
    return slow(range, access);
  };
  const auto [step, region] = run(pages(0, 2));
  ASSERT_EQ(step, Step::leased);
  EXPECT_EQ(peak.most, static_cast<std::int64_t>(pages_bytes(2)));
  EXPECT_EQ(peak.registering, kMillisecond) << "it counts from the begin of its device call";
  counted.release(region);
  retire_all(counted, Actor::helper, [](auto&&...) {});
  EXPECT_EQ(peak.bytes, 0);
}

TEST_F(RegistryTest, AFailedDeregistrationStaysCountedAndIsTriedAgain) {
  int refusals = 0;
  device.refuse_deregistration = [&](RegistrationKey) { return refusals-- > 0 ? EBUSY : 0; };
  domain->release(acquire(pages(0, 2)));
  domain->release(acquire(pages(4, 5)));
  refusals = 2;
  int failed = 0;
  retire_all(*domain, Actor::helper, [&](const DeviceCall& call) { failed += call.error.code == EBUSY; });
  EXPECT_EQ(failed, 2);
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(3));
  EXPECT_EQ(witness->bytes(), static_cast<std::int64_t>(pages_bytes(3)));
  EXPECT_EQ(budget->bytes(), pages_bytes(3)) << "the limit counts what is held";
  EXPECT_EQ(domain->begin_reap(), nullptr) << "not at once";
  EXPECT_EQ(device.live(), 2u);

  // Registered anew meanwhile, as if the memory were free.
  domain->release(acquire(pages(0, 2)));
  clock.advance(kSecond);
  EXPECT_EQ(reap(), 2u);
  EXPECT_EQ(device.live(), 1u);
  EXPECT_EQ(budget->bytes(), pages_bytes(2));
  device.refuse_deregistration = [](RegistrationKey) { return 0; };
}

TEST_F(RegistryTest, WhatTheSystemRefusesIsNotAskedForEachTime) {
  // Another process of the user leaves room for 10 pages, later for 5, and at last for all.
  std::size_t room = 10;
  std::size_t refusals = 0, bounced = 0;
  device.refuse = [&](Range range, Access) {
    const bool fits = device.bytes() + range.bytes() <= pages_bytes(room);
    refusals += !fits;
    return fits ? 0 : ENOMEM;
  };
  const auto use = [&](int times) {
    for (int i = 0; i < times; ++i) {
      const auto at = static_cast<std::size_t>(i % 8) * 10;
      Region* const region = acquire(pages(at, at + 3));
      bounced += !region;
      if (region) domain->release(region);
      clock.advance(10 * kMicrosecond);
    }
  };
  use(1000);
  EXPECT_LE(refusals, 3u);
  EXPECT_EQ(device.bytes(), pages_bytes(9));
  refusals = 0;
  room = 5;  // pinned pages stay so
  use(1000);
  EXPECT_LE(refusals, 6u);
  EXPECT_LE(bounced, 2u);
  EXPECT_EQ(device.bytes(), pages_bytes(3));
  room = 100;
  clock.advance(2 * kSecond);
  use(1000);
  EXPECT_EQ(device.live(), 8u) << "all of it has room again";
}

TEST_F(RegistryTest, PressureOfTheDeviceIsRelievedOnce) {
  device.refuse = [this](Range range, Access) {
    return device.bytes() + range.bytes() > pages_bytes(10) ? ENOMEM : 0;
  };
  idle(pages(0, 4), 1);
  idle(pages(10, 14), 2);
  idle(pages(20, 24), 3);
  EXPECT_FALSE(hits(pages(0, 4)));
  EXPECT_TRUE(hits(pages(10, 14)));
  auto large = ticket(pages(100, 111));
  EXPECT_EQ(run(large), Step::refused);
  EXPECT_EQ(large.result().error.code, ENOMEM);
}

TEST_F(RegistryTest, NothingLeaksWhereverTheDeviceFails) {
  for (const int code : {ENOMEM, EFAULT, ENOSPC, EPERM}) {
    for (int k = 1; k <= 4; ++k) {
      limit(pages_bytes(40));
      int calls = 0;
      device.refuse = [&](Range, Access) { return ++calls % k == 0 ? code : 0; };
      std::vector<Region*> leases;
      for (std::size_t i = 0; i < 60; ++i) {
        const std::size_t begin = i * 7 % 50;
        if (Region* region = acquire(pages(begin, begin + 1 + i % 9))) leases.push_back(region);
        EXPECT_EQ(device.bytes(), domain->registered_bytes());
        if (i % 5 == 4) {
          for (Region* region : leases) domain->release(region);
          leases.clear();
        }
      }
      for (Region* region : leases) domain->release(region);
      EXPECT_EQ(device.live(), domain->region_count());
      EXPECT_EQ(domain->registered_bytes(), static_cast<std::size_t>(witness->bytes()));
      TearDown();
    }
  }
}

}  // namespace
}  // namespace pinion::domain_test
