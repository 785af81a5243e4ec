// The leases of requests that the program freed under way, and the handles that MPI may be asked about.
#include "intercept/mpi/freed_requests.h"

#include "intercept/mpi/known_handles.h"
#include "leases.h"
#include "monitor/memory_events.h"
#include "support/eventually.h"

namespace pinion::mpi {
namespace {

class FreedRequestsTest : public LeasesTest {
 protected:
  ~FreedRequestsTest() override { freed_.finish(*thread_, *leases_); }

  void free(std::size_t first, std::size_t pages) {
    Operation operation;
    operation.add(lease(first, pages));
    freed_.keep(*thread_, *leases_, std::move(operation));
  }

  FreedRequests& freed_ = FreedRequests::instance();
};

TEST_F(FreedRequestsTest, LeasesStayUntilTheEnd) {
  free(0, 3);
  free(10, 2);
  freed_.poll(*thread_, *leases_);
  EXPECT_EQ(leased_pages(), 5u);
  freed_.finish(*thread_, *leases_);
  EXPECT_EQ(leased_pages(), 0u);
}

TEST_F(FreedRequestsTest, LeasesOfMemoryThatChangedAreReturned) {
  free(0, 3);
  free(10, 2);
  memory_events::begin({{page(0), page(1)}});
  memory_events::end({page(0), page(1)});
  EXPECT_EQ(leased_pages(), 5u);
  freed_.poll(*thread_, *leases_);
  // Deregistration is the helper's.
  EXPECT_TRUE(test::eventually([&] { return leased_pages() == 2; }));
}

TEST_F(FreedRequestsTest, OfVeryManyTheOldestGo) {
  free(0, 3);
  for (std::size_t i = 0; i + 1 < FreedRequests::kMost; ++i) free(10, 1);
  EXPECT_EQ(leased_pages(), 4u);
  free(10, 1);
  EXPECT_EQ(leased_pages(), 1u);
}

TEST(KnownHandles, AreKnownUntilTheyAreFreed) {
  KnownHandles known;
  EXPECT_FALSE(known.contains(0));
  EXPECT_FALSE(known.contains(7));
  known.add(7);
  known.add(7);
  EXPECT_TRUE(known.contains(7));
  EXPECT_FALSE(known.contains(8));
  known.remove(7);
  EXPECT_FALSE(known.contains(7));
  EXPECT_FALSE(known.contains(0));
}

TEST(KnownHandles, OfTooManySomeAreForgottenAndNoneIsMadeUp) {
  KnownHandles known;
  for (std::uintptr_t i = 1; i <= 100000; ++i) {
    known.add(2 * i);
    EXPECT_TRUE(known.contains(2 * i));
  }
  for (std::uintptr_t i = 1; i <= 100000; ++i) EXPECT_FALSE(known.contains(2 * i + 1));
}

}  // namespace
}  // namespace pinion::mpi
