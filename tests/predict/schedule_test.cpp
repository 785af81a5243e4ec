// The predictor that a playing program hands its schedule to: uses are located by their time.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <memory>

#include "predict/played_schedule.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

class Played : public ::testing::Test {
 protected:
  static constexpr Address kFirst = Address{1} << 40, kSecondBuffer = kFirst + (1 << 20);
  static constexpr Duration kLate = 3 * kMillisecond;

  /// Four uses of two buffers by turns, 10 ms apart.
  void SetUp() override {
    ::setenv("PINION_TEST_SCHEDULE", (directory_.path() + "/schedule").c_str(), 1);
    const Error error = schedule_.create(PlayedSchedule::path(), 4);
    ASSERT_FALSE(error) << error.message;
    for (std::size_t at = 0; at < 4; ++at) {
      schedule_[at].time = static_cast<Time>(at) * 10 * kMillisecond;
      schedule_[at].range = {buffer(at), buffer(at) + page_size()};
    }
    predictor_ = played_predictor();
    ASSERT_TRUE(predictor_);
  }
  void TearDown() override { ::unsetenv("PINION_TEST_SCHEDULE"); }

  static Address buffer(std::size_t at) { return at % 2 ? kSecondBuffer : kFirst; }

  /// The program begins the use at that position, `kLate` later than scheduled from `start_` on.
  Time begin(std::size_t at) {
    const Ticks ticks = start_ + calibration().to_ticks(schedule_[at].time + kLate);
    schedule_[at].begun = ticks;
    return calibration().to_time(ticks);
  }
  void observe(std::size_t at, Time time, Duration delayed = 0) {
    Use use;
    use.buffer = static_cast<BufferId>(at % 2);
    use.address = buffer(at);
    use.thread = 5;  // whichever it is for Pinion
    use.time = time - delayed;
    use.end = use.time + kMillisecond;
    use.delayed = delayed;
    predictor_->observe(use);
  }

  TemporaryDirectory directory_;
  PlayedSchedule schedule_;
  std::unique_ptr<Predictor> predictor_;
  const Ticks start_ = ticks_now();
};

TEST_F(Played, TheNextUseFollowsTheLastOne) {
  const Time first = begin(0);
  observe(0, first);
  EXPECT_NEAR(predictor_->next_use(0, first), first + 20 * kMillisecond, kMicrosecond);
  EXPECT_EQ(predictor_->next_use(1, first), kNever) << "a buffer that has not been met";
}

TEST_F(Played, LostRecordsDoNotMislead) {
  const Time first = begin(0);
  observe(0, first);
  begin(1);
  const Time third = begin(2), fourth = begin(3);
  observe(3, fourth);
  EXPECT_EQ(predictor_->next_use(0, third), kNever) << "the third use has passed without a record";
  EXPECT_EQ(predictor_->next_use(1, fourth), kNever);
}

TEST_F(Played, WaitsForRegistrationAreNoPartOfTheProgramsTime) {
  const Time first = begin(0);
  observe(0, first, 2 * kMillisecond);
  EXPECT_NEAR(predictor_->next_use(0, first - 2 * kMillisecond), first + 18 * kMillisecond, kMicrosecond);
}

TEST(PlayedSchedule, ExistsOnlyForTests) { EXPECT_FALSE(played_predictor()); }

TEST(PlayedSchedule, WithoutItsFileNothingIsPredicted) {
  ::setenv("PINION_TEST_SCHEDULE", "/nowhere/schedule", 1);
  const auto predictor = played_predictor();
  ::unsetenv("PINION_TEST_SCHEDULE");
  ASSERT_TRUE(predictor);
  predictor->observe({});
  EXPECT_EQ(predictor->next_use(0, 0), kNever);
}

// Its name can be guessed, and others may write to the same directory.
TEST(PlayedSchedule, OnlyAFileOfTheUserIsFollowed) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/file", link = directory.path() + "/link";
  ASSERT_FALSE(PlayedSchedule().create(file, 1));
  EXPECT_FALSE(PlayedSchedule().open(file));
  ASSERT_EQ(::symlink(file.c_str(), link.c_str()), 0);
  EXPECT_TRUE(PlayedSchedule().open(link));
  EXPECT_TRUE(PlayedSchedule().open("/dev/zero"));
  ASSERT_FALSE(PlayedSchedule().create(link, 2)) << "in the link's place";
  PlayedSchedule schedule;
  ASSERT_FALSE(schedule.open(file));
  EXPECT_EQ(schedule.size(), 1u);
  ASSERT_EQ(::truncate(file.c_str(), 1), 0);
  EXPECT_TRUE(PlayedSchedule().open(file)) << "less than one use";
}

}  // namespace
}  // namespace pinion
