// The front's table of requests, without an MPI library: handles are any numbers.
#include "intercept/mpi/requests.h"

#include <thread>

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
  void hold(std::uintptr_t request, Operation&& held) {
    requests_.hold(request, [&](Operation& place) { place = std::move(held); });
  }
  void complete(std::uintptr_t request) { requests_.complete(*thread_, *leases_, request); }

  static constexpr std::uintptr_t kShared = 12345;  ///< a handle that threads share
  Requests& requests_ = Requests::instance();
};

TEST_F(RequestsTest, ALeaseStaysUntilItsRequestCompletes) {
  EXPECT_FALSE(requests_.may_know(1));
  hold(1, operation(0, 3));
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
  hold(1, std::move(all));
  EXPECT_EQ(leased_pages(), 7u);
  complete(1);
  EXPECT_EQ(leased_pages(), 0u);
}

// A thread waits for a request; the MPI gives its handle to another thread's operation before the first
// thread reports the completion.
TEST_F(RequestsTest, ACompletionIsOfTheOldestOperationOfAHandle) {
  hold(1, operation(0, 1));
  hold(1, operation(10, 2));
  hold(1, operation(20, 4));
  complete(1);
  EXPECT_EQ(leased_pages(), 6u);
  complete(1);
  EXPECT_EQ(leased_pages(), 4u);
  complete(1);
  EXPECT_EQ(leased_pages(), 0u);
  EXPECT_FALSE(requests_.may_know(1));
}

TEST_F(RequestsTest, AFreedRequestIsTheNewestOfItsHandle) {
  hold(1, operation(0, 1));
  hold(1, operation(10, 2));
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
    hold(1, operation(0, 3));
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
  for (std::uintptr_t i = 0; i < 20; ++i) hold(i, operation(2 * i, 1));
  requests_.remember(3, {CallKind::send_persistent, {}});
  EXPECT_EQ(leased_pages(), 20u);
  requests_.release_all(*thread_, *leases_);
  EXPECT_EQ(leased_pages(), 0u);
  for (std::uintptr_t i = 0; i < 20; ++i) EXPECT_FALSE(requests_.may_know(i));
}

// More handles than places: several share one.
TEST_F(RequestsTest, HandlesThatShareAPlaceKeepTheirOperationsApart) {
  constexpr std::uintptr_t kHandles = 4000;
  const auto bytes = [](std::uintptr_t handle) { return handle + 1; };
  for (std::uintptr_t i = 0; i < kHandles; ++i)
    requests_.hold(i, [&](Operation& place) {
      EXPECT_TRUE(place.empty()) << i;
      place.receive.begin_whole(bytes(i));
    });
  for (std::uintptr_t i = kHandles; i-- > 0;) {
    EXPECT_TRUE(requests_.may_know(i));
    const Operation freed = requests_.take_freed(i);
    EXPECT_EQ(freed.receive.posted(), bytes(i));
  }
  for (std::uintptr_t i = 0; i < kHandles; ++i) EXPECT_FALSE(requests_.may_know(i)) << i;
}

TEST_F(RequestsTest, AnOperationThatWasListedComesAfterThatInThePlace) {
  requests_.remember(1, {CallKind::send_persistent, {}});
  hold(1, operation(0, 1));  // listed, since the place is free but its handle is not
  requests_.take_freed(1).complete(*thread_, *leases_);
  EXPECT_EQ(leased_pages(), 0u);
  hold(1, operation(10, 2));
  hold(1, operation(20, 4));
  complete(1);
  hold(1, operation(30, 8));  // the place is free again, and an older one is listed
  complete(1);
  EXPECT_EQ(leased_pages(), 8u) << "the oldest goes first";
}

TEST_F(RequestsTest, ThreadsHoldAndCompleteAtOnce) {
  constexpr int kThreads = 4, kRounds = 2000;
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number)
    threads.emplace_back([&, number] {
      ThreadContext& thread = *this_thread();
      for (int round = 0; round < kRounds; ++round) {
        const auto handle = static_cast<std::uintptr_t>(round % 50 * kThreads + number);
        Transfer transfer;
        leases_->lease(thread, 0, {},
                       {page(static_cast<std::size_t>(number)), page(static_cast<std::size_t>(number) + 1)},
                       Access::read, transfer);
        requests_.hold(handle, [&](Operation& place) { place.add(transfer); });
        requests_.hold(kShared, [&](Operation& place) { place.receive.begin_whole(handle + 1); });
        requests_.complete(thread, *leases_, handle);
        requests_.complete(thread, *leases_, kShared);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(leased_pages(), 0u);
  EXPECT_FALSE(requests_.may_know(kShared));
}

}  // namespace
}  // namespace pinion::mpi
