// Leases that belong to windows and files.
#include "intercept/mpi/holdings.h"

#include "leases.h"

namespace pinion::mpi {
namespace {

class HoldingsTest : public LeasesTest {
 protected:
  void release(std::uintptr_t object, std::uint64_t part) {
    holdings_.release(*thread_, *leases_, object, part);
  }
  void release(std::uintptr_t object) { holdings_.release(*thread_, *leases_, object); }

  Holdings holdings_;
};

TEST_F(HoldingsTest, APartIsReleasedAlone) {
  EXPECT_TRUE(holdings_.empty());
  holdings_.hold(1, 7, lease(0, 1));
  holdings_.hold(1, 8, lease(10, 2));
  holdings_.hold(1, 7, lease(20, 4));
  holdings_.hold(2, 7, lease(30, 8));
  release(1, 7);
  EXPECT_EQ(leased_pages(), 10u);
  release(1, 7);
  release(3, 7);
  EXPECT_EQ(leased_pages(), 10u);
  release(1, 8);
  EXPECT_EQ(leased_pages(), 8u);
  EXPECT_FALSE(holdings_.empty());
  release(2, 7);
  EXPECT_TRUE(holdings_.empty());
}

TEST_F(HoldingsTest, AnObjectIsReleasedWithAllItsParts) {
  holdings_.hold(1, 7, lease(0, 1));
  holdings_.hold(1, 8, lease(10, 2));
  holdings_.hold(2, 8, lease(20, 4));
  release(1);
  EXPECT_EQ(leased_pages(), 4u);
  holdings_.release_all(*thread_, *leases_);
  EXPECT_EQ(leased_pages(), 0u);
  EXPECT_TRUE(holdings_.empty());
}

}  // namespace
}  // namespace pinion::mpi
