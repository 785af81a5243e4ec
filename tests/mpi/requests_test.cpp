// The front's table of requests, without an MPI library: handles are any addresses. Retention on-demand shows
// by the registered bytes which leases are out.
#include "intercept/mpi/requests.h"

#include <gtest/gtest.h>

#include <vector>

namespace pinion::mpi {
namespace {

class RequestsTest : public ::testing::Test {
 protected:
  RequestsTest() : memory_(kPages * page_size()) {
    Options options;
    options.retention = RetentionKind::on_demand;
    const Error error = Engine::start(options, {}, "test");
    EXPECT_FALSE(error) << error.message;
    engine_ = Engine::running();
    thread_ = this_thread();
  }
  ~RequestsTest() override {
    requests_.release_all();
    Engine::stop();
  }

  /// A lease of `pages` pages from page `first` on.
  Transfer lease(std::size_t first, std::size_t pages) {
    const Address base = page_ceil(reinterpret_cast<Address>(memory_.data()));
    Transfer transfer;
    engine_->acquire(*thread_, 0, {}, {base + first * page_size(), base + (first + pages) * page_size()},
                     Access::read, transfer);
    return transfer;
  }
  std::size_t registered_pages() { return engine_->counters().registered_now_bytes / page_size(); }
  void complete(MPI_Request request) { requests_.complete(*thread_, *engine_, request); }
  static MPI_Request handle(std::uintptr_t n) { return reinterpret_cast<MPI_Request>(n * 64); }

  static constexpr std::size_t kPages = 64;
  std::vector<char> memory_;
  Engine* engine_;
  ThreadContext* thread_;
  Requests& requests_ = Requests::instance();
};

TEST_F(RequestsTest, ALeaseStaysUntilItsRequestCompletes) {
  EXPECT_TRUE(requests_.empty());
  requests_.hold(handle(1), lease(0, 3));
  EXPECT_FALSE(requests_.empty());
  complete(handle(2));
  EXPECT_EQ(registered_pages(), 3u);
  complete(handle(1));
  EXPECT_EQ(registered_pages(), 0u);
  EXPECT_TRUE(requests_.empty());
}

// A thread waits for a request; the MPI gives its handle to another thread's operation before the first
// thread comes to say that it is complete.
TEST_F(RequestsTest, ACompletionIsOfTheOldestOperationOfAHandle) {
  requests_.hold(handle(1), lease(0, 1));
  requests_.hold(handle(1), lease(10, 2));
  requests_.hold(handle(1), lease(20, 4));
  complete(handle(1));
  EXPECT_EQ(registered_pages(), 6u);
  complete(handle(1));
  EXPECT_EQ(registered_pages(), 4u);
  complete(handle(1));
  EXPECT_EQ(registered_pages(), 0u);
  EXPECT_TRUE(requests_.empty());
}

TEST_F(RequestsTest, AFreedRequestIsTheNewestOfItsHandleAndKeepsItsLease) {
  requests_.hold(handle(1), lease(0, 1));
  requests_.hold(handle(1), lease(10, 2));
  requests_.freed(handle(1));
  complete(handle(1));
  EXPECT_EQ(registered_pages(), 2u);
  EXPECT_TRUE(requests_.empty());
  requests_.release_all();
  EXPECT_EQ(registered_pages(), 0u);
}

TEST_F(RequestsTest, APersistentRequestIsKnownUntilItIsFreed) {
  const Range range{4096, 8192};
  requests_.remember(handle(1), {range, Access::write, CallKind::receive_persistent, 5});
  for (int round = 0; round < 3; ++round) {
    Requests::Persistent found;
    ASSERT_TRUE(requests_.find(handle(1), found));
    EXPECT_EQ(found.range.begin, range.begin);
    EXPECT_EQ(found.peer, 5);
    requests_.hold(handle(1), lease(0, 3));
    EXPECT_EQ(registered_pages(), 3u);
    complete(handle(1));
    EXPECT_EQ(registered_pages(), 0u);
    complete(handle(1));  // inactive: nothing to release
  }
  requests_.freed(handle(1));
  Requests::Persistent found;
  EXPECT_FALSE(requests_.find(handle(1), found));
  EXPECT_TRUE(requests_.empty());
}

}  // namespace
}  // namespace pinion::mpi
