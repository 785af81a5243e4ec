// Regions of a device that hides registered memory from forked children: a child lacks the memory of
// requests, and no more.

#include <gtest/gtest.h>

#include "fixture.h"

namespace pinion::domain_test {
namespace {

class HiddenFromChildrenTest : public RegistryTest {
 protected:
  HiddenFromChildrenTest() {
    device.hides_from_children = true;
    domain->device_changed();
  }
};

TEST_F(HiddenFromChildrenTest, OverlapsAreNotMerged) {
  EXPECT_EQ(idle(pages(0, 8))->range(), pages(0, 8));
  EXPECT_EQ(idle(pages(4, 12))->range(), pages(4, 12));
  EXPECT_TRUE(hits(pages(0, 8)));
  EXPECT_TRUE(hits(pages(4, 12)));
  EXPECT_EQ(device.live(), 2u);
}

TEST_F(HiddenFromChildrenTest, APartIsNotServedByTheWhole) {
  idle(pages(0, 8));
  EXPECT_TRUE(hits(pages(0, 8)));
  EXPECT_FALSE(hits(pages(0, 7))) << "it begins where the thread's last request did";
  EXPECT_FALSE(hits(pages(2, 4)));
  EXPECT_EQ(idle(pages(2, 4))->range(), pages(2, 4));
  EXPECT_EQ(device.bytes(), pages_bytes(2)) << "regions never contain each other";
}

TEST_F(HiddenFromChildrenTest, BytesOfTheSamePagesAreServed) {
  const Range whole = pages(0, 2);
  idle(whole);
  EXPECT_TRUE(hits({whole.begin + 100, whole.end - 1}));
  EXPECT_TRUE(hits({whole.begin + 100, whole.end - 1})) << "by a hint";
  EXPECT_FALSE(hits({whole.begin + 100, whole.begin + 200}));
}

TEST_F(HiddenFromChildrenTest, ALeasedWholeStaysBesideItsPart) {
  Region* const whole = acquire(pages(0, 8));
  Region* const part = acquire(pages(2, 4));
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(part->range(), pages(2, 4));
  EXPECT_EQ(device.live(), 2u);
  domain->release(whole);
  EXPECT_EQ(reap(), 1u);
  EXPECT_EQ(device.bytes(), pages_bytes(2));
  domain->release(part);
}

TEST_F(HiddenFromChildrenTest, MemoryThatIsCopiedForChildrenServesParts) {
  auto in_large = ticket(pages(3, 4));
  in_large.request().large = in_large_pages(pages(3, 4), pages_bytes(8));
  ASSERT_EQ(run(in_large), Step::leased);
  domain->release(in_large.result().region);
  EXPECT_TRUE(hits(pages(6, 7)));
  auto permanent = ticket(pages(16, 24));
  permanent.request().owner = this;
  permanent.request().lease = false;
  ASSERT_EQ(run(permanent), Step::leased);
  EXPECT_TRUE(hits(pages(18, 20)));
  change(pages(16, 24));
  EXPECT_EQ(reap(), 1u);
}

}  // namespace
}  // namespace pinion::domain_test
