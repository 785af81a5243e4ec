// What the helper grants the goal for the peak (registry/peak_goal.h): pages, of the time that is free.
#include <gtest/gtest.h>

#include "retention/desk.h"
#include "support/registry_fixture.h"

namespace pinion {
namespace {

using test::RegistryTest;

constexpr Duration kLeast = 20 * kMillisecond;

class PeakGrantTest : public RegistryTest {
 protected:
  Desk desk{{.traits = traits_of(RetentionKind::helper), .time_budget = {.least = kLeast}, .scale = {}}};
  KeptDomain first, second;

  void add(KeptDomain& kept) {
    kept.domain = domain.get();
    kept.retention = make_retention({.kind = RetentionKind::helper}, *domain,
                                    make_predictor("shortest", 0, 4), kept.costs, desk.time_budget());
    desk.add(kept);
  }
  /// Registrations of the domain take so long.
  static void takes(KeptDomain& kept, Duration call, Duration a_page) {
    for (int i = 0; i < 200; ++i) {
      const std::size_t pages = i % 2 == 0 ? 4 : 64;
      const Duration took = call + a_page * static_cast<Duration>(pages);
      kept.costs.registered(pages, pages, took);
      kept.costs.deregistration.observe(pages, 0);
    }
  }
  PeakGoal& goal() { return budget->peak_goal(); }
  bool is_granted() { return goal().bytes() != PeakGoal::kAny; }
};

TEST_F(PeakGrantTest, IsInPagesOfTheDearestDomain) {
  add(first);
  add(second);
  takes(second, 0, 100 * kMicrosecond);
  desk.used(0, 0);
  ASSERT_TRUE(goal().pursued());
  EXPECT_TRUE(is_granted());
  goal().spend(1.1 * kLeast / (100 * kMicrosecond));
  EXPECT_FALSE(is_granted());
}

TEST_F(PeakGrantTest, PagesCountWhereAllRegistrationsTakeTheSame) {
  const Duration call = 500 * kMicrosecond;
  add(first);
  takes(first, call, 0);
  desk.used(0, 0);
  ASSERT_TRUE(is_granted());
  for (int i = 0; i < 1.1 * kLeast / call; ++i) goal().spend(16 + first.costs.call_pages());
  EXPECT_FALSE(is_granted());
}

TEST_F(PeakGrantTest, ACallAndItsPagesMakeTheTimeOfARoundTrip) {
  for (const Duration a_page : {0, 1, 250, 10'000}) {
    KeptDomain kept;
    takes(kept, 20 * kMicrosecond, a_page);
    const auto expected =
        static_cast<double>(kept.costs.registration.expected(64) + kept.costs.deregistration.expected(64));
    EXPECT_NEAR((64 + kept.costs.call_pages()) * kept.costs.a_page(), expected, expected / 100) << a_page;
  }
}

}  // namespace
}  // namespace pinion
