// Learning the length of receives.
#include "intercept/mpi/arrivals.h"

#include "leases.h"

namespace pinion::mpi {
namespace {

class ArrivalsTest : public LeasesTest {
 protected:
  ArrivalsTest() : posted_(40 * page_size()) {}

  Receive receive(CallSite site, std::uint64_t leased) const {
    return {page(0), posted_, leased, arrival_key(site, 3, posted_), {}};
  }
  std::uint64_t expected(CallSite site) const {
    return expected_arrival(arrival_key(site, 3, posted_), posted_);
  }
  void learn(const Receive& receive, std::uint64_t arrived) {
    learn_arrival(*thread_, *leases_, receive, arrived);
  }

  const std::uint64_t posted_;
};

TEST_F(ArrivalsTest, WhatIsNotKnownIsAllThatWasPosted) { EXPECT_EQ(expected(100), posted_); }

TEST_F(ArrivalsTest, TheLongestMessageIsExpected) {
  learn(receive(101, posted_), 5000);
  EXPECT_EQ(expected(101), 5000u);
  learn(receive(101, 5000), 3000);
  EXPECT_EQ(expected(101), 5000u);
  learn(receive(101, 5000), 9000);
  EXPECT_EQ(expected(101), 9000u);
  learn(receive(101, 9000), 100 * posted_);
  EXPECT_EQ(expected(101), posted_);
}

TEST_F(ArrivalsTest, SendersAndLengthsAreToldApart) {
  learn(receive(102, posted_), 5000);
  EXPECT_EQ(expected_arrival(arrival_key(102, 4, posted_), posted_), posted_);
  EXPECT_EQ(expected_arrival(arrival_key(102, 3, posted_ - 1), posted_ - 1), posted_ - 1);
}

TEST_F(ArrivalsTest, WhatWasMissingIsLeasedLate) {
  const std::uint64_t before = acquires();
  learn(receive(103, 8 * page_size()), 8 * page_size());
  EXPECT_EQ(acquires(), before);
  learn(receive(103, 8 * page_size()), 20 * page_size());
  EXPECT_EQ(acquires(), before + 1);
  EXPECT_EQ(engine_->counters().all().acquired_bytes, 12 * page_size());
  EXPECT_EQ(leased_pages(), 0u);
  // Too short to need registration.
  learn(receive(103, 0), leases_->threshold() - 1);
  EXPECT_EQ(acquires(), before + 1);
}

}  // namespace
}  // namespace pinion::mpi
