// Learning the length of receives.
#include "intercept/mpi/arrivals.h"

#include "leases.h"

namespace pinion::mpi {
namespace {

class ArrivalsTest : public LeasesTest {
 protected:
  ArrivalsTest() : posted_(40 * page_size()) {}

  Range posted() const { return {page(0), page(0) + posted_}; }
  /// The bytes that a receive leases, whose length stays unknown.
  std::uint64_t expected(CallSite site, int source = 3) { return begin(site, source).expected; }
  /// Ends a receive that leased as many bytes as were expected.
  void learn(CallSite site, std::uint64_t arrived) { end(begin(site, 3).receive, arrived); }

  struct Begun {
    Receive receive;
    std::uint64_t expected;
  };
  Begun begin(CallSite site, int source, std::int64_t known = -1) {
    Begun begun;
    begun.expected = begun.receive.begin_expected(*leases_, posted(),
                                                  {ticks_now(), site, CallKind::receive, source}, known);
    EXPECT_TRUE(begun.receive.under_way());
    return begun;
  }
  void end(Receive receive, std::uint64_t arrived) {
    Transfer other;
    EXPECT_FALSE(receive.end(*thread_, *leases_, static_cast<std::int64_t>(arrived), other));
    EXPECT_FALSE(receive.under_way());
  }

  const std::uint64_t posted_;
};

TEST_F(ArrivalsTest, WhatIsNotKnownIsAllThatWasPosted) { EXPECT_EQ(expected(100), posted_); }

TEST_F(ArrivalsTest, TheLongestMessageIsExpected) {
  const std::uint64_t page = page_size();
  learn(101, 5 * page);
  EXPECT_EQ(expected(101), 5 * page);
  learn(101, 4 * page);
  EXPECT_EQ(expected(101), 5 * page);
  learn(101, 9 * page);
  EXPECT_EQ(expected(101), 9 * page);
  learn(101, 100 * posted_);
  EXPECT_EQ(expected(101), posted_);
}

TEST_F(ArrivalsTest, SendersAndLengthsAreToldApart) {
  learn(102, 5 * page_size());
  EXPECT_EQ(expected(102, 4), posted_);
  Receive shorter;
  EXPECT_EQ(
      shorter.begin_expected(*leases_, {page(0), page(0) + posted_ - 1}, {0, 102, CallKind::receive, 3}, -1),
      posted_ - 1);
}

TEST_F(ArrivalsTest, WhatWasMissingIsLeasedLate) {
  learn(103, 8 * page_size());
  const std::uint64_t before = acquires();
  learn(103, 8 * page_size());
  EXPECT_EQ(acquires(), before);
  learn(103, 20 * page_size());
  EXPECT_EQ(acquires(), before + 1);
  EXPECT_EQ(engine_->counters().all().acquired_bytes, 12 * page_size());
  EXPECT_EQ(leased_pages(), 0u);
  // Too short to need registration.
  end(begin(103, 3, 0).receive, leases_->threshold() - 1);
  EXPECT_EQ(acquires(), before + 1);
}

// Retention on-demand leaves no records. So a receive into memory that another lease has registered leases
// all that is posted, and its use is of what arrives.
class WholeReceivesTest : public ArrivalsTest {
 protected:
  WholeReceivesTest() : other_(lease_of(posted(), Access::write)) { before_ = engine_->counters().all(); }
  ~WholeReceivesTest() override { leases_->release(*thread_, other_); }

  Transfer lease_of(Range range, Access access) {
    Transfer transfer;
    leases_->lease(*thread_, 0, {}, range, access, transfer);
    return transfer;
  }
  /// A receive of all that is posted, of which `arrived` bytes arrive. Returns whether its end released it.
  bool receive(std::int64_t arrived) {
    Transfer lease;
    EXPECT_EQ(leases_->lease_quickly(*thread_, 0, posted(), Access::write, lease), LeasePath::Quick::done);
    EXPECT_TRUE(lease.active);
    Receive receive;
    receive.begin_whole(posted_);
    const bool released = receive.end(*thread_, *leases_, arrived, lease);
    EXPECT_EQ(lease.active, !released);
    if (!released) leases_->release(*thread_, lease);
    return released;
  }
  std::uint64_t bytes() { return engine_->counters().all().acquired_bytes - before_.acquired_bytes; }
  std::uint64_t hits() { return engine_->counters().all().hits - before_.hits; }
  std::uint32_t uses() const { return other_.region()->uses.load(); }

  Transfer other_;
  runlog::Counters before_;
};

TEST_F(WholeReceivesTest, CountAllThatWasPostedWhereItArrives) {
  EXPECT_FALSE(receive(static_cast<std::int64_t>(posted_)));
  EXPECT_EQ(bytes(), posted_);
  EXPECT_EQ(hits(), 1u);
  EXPECT_EQ(uses(), 1u);
}

TEST_F(WholeReceivesTest, CountNoMoreThanWhatArrived) {
  EXPECT_TRUE(receive(static_cast<std::int64_t>(5 * page_size())));
  EXPECT_EQ(bytes(), 5 * page_size());
  EXPECT_EQ(hits(), 1u);
  EXPECT_EQ(uses(), 1u);
}

TEST_F(WholeReceivesTest, AreNoUseWhereLittleArrives) {
  EXPECT_TRUE(receive(static_cast<std::int64_t>(leases_->threshold()) - 1));
  EXPECT_EQ(bytes(), 0u);
  EXPECT_EQ(hits(), 0u);
  EXPECT_EQ(uses(), 0u) << "retention learns of none";
}

TEST_F(WholeReceivesTest, CountAllWhereItsLengthStaysUnknown) {
  EXPECT_FALSE(receive(-1));
  EXPECT_EQ(bytes(), posted_);
}

}  // namespace
}  // namespace pinion::mpi
