// The front's table of requests, without an MPI library: handles are any numbers.
#include "intercept/mpi/requests.h"

#include "leases.h"

namespace pinion::mpi {
namespace {

class RequestsTest : public LeasesTest {
 protected:
  ~RequestsTest() override { requests_.release_all(*thread_, *leases_); }

  Operation operation(std::size_t first, std::size_t pages) {
    Operation made;
    made.add(lease(first, pages));
    return made;
  }
  void complete(std::uintptr_t request) { requests_.complete(*thread_, *leases_, request); }

  Requests& requests_ = Requests::instance();
};

TEST_F(RequestsTest, ALeaseStaysUntilItsRequestCompletes) {
  EXPECT_FALSE(requests_.may_know(1));
  requests_.hold(1, operation(0, 3));
  EXPECT_TRUE(requests_.may_know(1));
  complete(2);
  EXPECT_EQ(leased_pages(), 3u);
  complete(1);
  EXPECT_EQ(leased_pages(), 0u);
  EXPECT_FALSE(requests_.may_know(1));
}

TEST_F(RequestsTest, AnOperationHoldsAllItsBuffers) {
  Operation all = operation(0, 1);
  all.add(lease(10, 2));
  all.add(lease(20, 4));
  requests_.hold(1, std::move(all));
  EXPECT_EQ(leased_pages(), 7u);
  complete(1);
  EXPECT_EQ(leased_pages(), 0u);
}

// A thread waits for a request; the MPI gives its handle to another thread's operation before the first
// thread reports the completion.
TEST_F(RequestsTest, ACompletionIsOfTheOldestOperationOfAHandle) {
  requests_.hold(1, operation(0, 1));
  requests_.hold(1, operation(10, 2));
  requests_.hold(1, operation(20, 4));
  complete(1);
  EXPECT_EQ(leased_pages(), 6u);
  complete(1);
  EXPECT_EQ(leased_pages(), 4u);
  complete(1);
  EXPECT_EQ(leased_pages(), 0u);
  EXPECT_FALSE(requests_.may_know(1));
}

TEST_F(RequestsTest, AFreedRequestIsTheNewestOfItsHandle) {
  requests_.hold(1, operation(0, 1));
  requests_.hold(1, operation(10, 2));
  Operation freed = requests_.take_freed(1);
  EXPECT_FALSE(freed.empty());
  complete(1);
  EXPECT_EQ(leased_pages(), 2u);
  EXPECT_FALSE(requests_.may_know(1));
  freed.complete(*thread_, *leases_);
  EXPECT_EQ(leased_pages(), 0u);
}

TEST_F(RequestsTest, APersistentRequestIsKnownUntilItIsFreed) {
  requests_.remember(1, {CallKind::receive_persistent, {{Range{4096, 8192}, Access::write, 5, true}}});
  for (int round = 0; round < 3; ++round) {
    const auto found = requests_.find(1);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->uses.at(0).range.begin, 4096u);
    EXPECT_EQ(found->uses.at(0).peer, 5);
    requests_.hold(1, operation(0, 3));
    EXPECT_EQ(leased_pages(), 3u);
    complete(1);
    EXPECT_EQ(leased_pages(), 0u);
    complete(1);  // inactive: nothing to release
  }
  EXPECT_TRUE(requests_.take_freed(1).empty());
  EXPECT_FALSE(requests_.find(1));
  EXPECT_FALSE(requests_.may_know(1));
}

TEST_F(RequestsTest, AtTheEndEverythingIsReturned) {
  for (std::uintptr_t i = 0; i < 20; ++i) requests_.hold(i, operation(2 * i, 1));
  requests_.remember(3, {CallKind::send_persistent, {}});
  EXPECT_EQ(leased_pages(), 20u);
  requests_.release_all(*thread_, *leases_);
  EXPECT_EQ(leased_pages(), 0u);
  for (std::uintptr_t i = 0; i < 20; ++i) EXPECT_FALSE(requests_.may_know(i));
}

}  // namespace
}  // namespace pinion::mpi
