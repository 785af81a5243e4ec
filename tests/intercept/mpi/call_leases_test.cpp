// The leases of one MPI call: how long they last, and what takes them over.
#include "intercept/mpi/call_leases.h"

#include <array>
#include <vector>

#include "leases.h"

namespace pinion::mpi {
namespace {

class CallLeasesTest : public LeasesTest {
 protected:
  Range pages(std::size_t first, std::size_t end) const { return {page(first), page(end)}; }
};

TEST_F(CallLeasesTest, LastUntilTheCallEnds) {
  {
    CallLeases leases(EntryFrame::here(), CallKind::send);
    ASSERT_TRUE(leases.enter(-1));
    for (std::size_t i = 0; i < 5; ++i) leases.acquire(pages(4 * i, 4 * i + 2), Access::read, 1);
    EXPECT_EQ(leased_pages(), 10u) << "more than a call has buffers";
  }
  EXPECT_EQ(leased_pages(), 0u);
}

TEST_F(CallLeasesTest, MoreHitsThanACallHasBuffersLieBesideIt) {
  std::vector<Transfer> registered;
  for (std::size_t i = 0; i < 6; ++i) registered.push_back(lease(4 * i, 2));
  struct Frame {
    CallLeases leases{EntryFrame::here(), CallKind::send};
    std::array<unsigned char, 4 * sizeof(Transfer)> of_the_caller{};
  } frame;
  ASSERT_TRUE(frame.leases.enter(-1));
  const std::uint64_t before = engine_->counters().all().hits;
  for (std::size_t i = 0; i < 6; ++i) frame.leases.acquire(pages(4 * i, 4 * i + 2), Access::read, 1);
  EXPECT_EQ(engine_->counters().all().hits, before + 6);
  EXPECT_EQ(frame.of_the_caller, (decltype(frame.of_the_caller){}));
  for (Transfer& transfer : registered) leases_->release(*thread_, transfer);
  EXPECT_EQ(leased_pages(), 12u);
}

/// Deeper in the stack than its caller, as a call inside of another one is.
[[gnu::noinline]] bool a_call_enters() {
  CallLeases leases(EntryFrame::here(), CallKind::send);
  return leases.enter(-1);
}

TEST_F(CallLeasesTest, ACallInsideOfAnotherLeasesNothing) {
  CallLeases outer(EntryFrame::here(), CallKind::broadcast);
  ASSERT_TRUE(outer.enter(-1));
  EXPECT_FALSE(a_call_enters());
  EXPECT_TRUE(outer.enter(-1));
}

TEST_F(CallLeasesTest, ARequestTakesThemOver) {
  {
    CallLeases leases(EntryFrame::here(), CallKind::send_nonblocking);
    ASSERT_TRUE(leases.enter(-1));
    leases.acquire(pages(0, 3), Access::read, 1);
    leases.hand_over_to(77);
  }
  EXPECT_EQ(leased_pages(), 3u);
  Requests::instance().complete(*thread_, *leases_, 77);
  EXPECT_EQ(leased_pages(), 0u);
}

TEST_F(CallLeasesTest, AReceiveLeasesTheKnownLengthAndLearnsWhatArrives) {
  CallLeases leases(EntryFrame::here(), CallKind::receive);
  ASSERT_TRUE(leases.enter(-1));
  leases.acquire_arriving(pages(0, 40), 1, static_cast<std::int64_t>(20 * page_size()));
  EXPECT_EQ(leased_pages(), 20u);
  ASSERT_TRUE(leases.awaits_length());
  const std::uint64_t before = acquires();
  leases.received(30 * page_size());
  EXPECT_EQ(acquires(), before + 1) << "the rest is leased late";
}

TEST_F(CallLeasesTest, StartingOverGivesAllBack) {
  CallLeases leases(EntryFrame::here(), CallKind::receive);
  ASSERT_TRUE(leases.enter(-1));
  leases.acquire_arriving(pages(0, 40), 1, -1);
  leases.start_over();
  EXPECT_EQ(leased_pages(), 0u);
  EXPECT_FALSE(leases.awaits_length());
}

}  // namespace
}  // namespace pinion::mpi
