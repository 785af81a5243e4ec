#include "lease/birth_advice.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "device/kernel/collapse.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

constexpr std::size_t kSize = BirthAdvice::kLeast + (std::size_t{4} << 10);

/// Mappings of private anonymous memory, each with a gap behind it, so that none merges with another.
class BirthAdviceTest : public ::testing::Test {
 protected:
  ~BirthAdviceTest() override {
    for (const Range& mapping : mappings_) ::munmap(reinterpret_cast<void*>(mapping.begin), mapping.bytes());
  }

  Range map(std::size_t bytes) {
    void* const at = ::mmap(nullptr, bytes + page_size(), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    const auto begin = reinterpret_cast<Address>(at);
    EXPECT_EQ(::mprotect(reinterpret_cast<void*>(begin + bytes), page_size(), PROT_NONE), 0);
    mappings_.push_back({begin, begin + bytes + page_size()});
    return {begin, begin + bytes};
  }
  Range appears(std::size_t bytes) {
    const Range mapping = map(bytes);
    births_.appeared(mapping);
    return mapping;
  }
  void is_registered(Range range) { births_.registered(range, ticks_now()); }
  /// Mappings of the size appear one after the other, and each is registered.
  void use(std::size_t bytes, int times) {
    for (int i = 0; i < times; ++i) is_registered(appears(bytes));
  }
  /// The kernel says whether it is.
  static bool is_advised(Range mapping) {
    std::ifstream smaps("/proc/self/smaps");
    std::ostringstream begin;
    begin << std::hex << mapping.begin << '-';
    bool inside = false;
    for (std::string line; std::getline(smaps, line);) {
      if (line.find('-') < line.find(' ')) inside = line.rfind(begin.str(), 0) == 0;
      if (inside && line.rfind("VmFlags:", 0) == 0) return (line + ' ').find(" hg ") != std::string::npos;
    }
    ADD_FAILURE() << "no such mapping";
    return false;
  }
  void SetUp() override {
    if (advice_unit() == 0) GTEST_SKIP() << "no transparent hugepages here";
    births_.begin(advice_unit(), "test", directory_.path());
  }

  const TemporaryDirectory directory_;
  BirthAdvice births_;

 private:
  std::vector<Range> mappings_;
};

TEST_F(BirthAdviceTest, ASizeThatWasRegisteredWholeTwiceIsAdvised) {
  for (int i = 0; i < 2; ++i) {
    const Range mapping = appears(kSize);
    EXPECT_FALSE(is_advised(mapping));
    // A block of malloc's lies behind its header.
    is_registered({mapping.begin + 16, mapping.end - 100});
    EXPECT_FALSE(is_advised(mapping));
  }
  EXPECT_TRUE(is_advised(appears(kSize)));
  EXPECT_EQ(births_.advised_bytes(), kSize);
}

TEST_F(BirthAdviceTest, WhatIsToBeAdvisedBeginsAtAHugepagesBorder) {
  EXPECT_EQ(births_.wish(kSize).alignment, 0u);
  use(kSize, 2);
  EXPECT_EQ(births_.wish(kSize).alignment, advice_unit());
  EXPECT_EQ(births_.wish(kSize + page_size()).alignment, 0u);
  EXPECT_EQ(births_.wish(page_size()).alignment, 0u);
  EXPECT_TRUE(is_advised(appears(kSize)));
  EXPECT_EQ(births_.wish(kSize).alignment, 0u) << "no more than were registered";
}

// Where one ordinary page makes all of a region's translation entries ordinary.
TEST_F(BirthAdviceTest, ItHasATailForADeviceThatGainsByWholeRegionsOnly) {
  const std::size_t large = (std::size_t{64} << 20) + page_size();
  use(large, 2);
  EXPECT_FALSE(births_.wish(large).tail);
  const Range mapping = appears(large);
  births_.registered(mapping, ticks_now(), true);
  EXPECT_TRUE(births_.wish(large).tail);
  use(kSize, 2);
  EXPECT_NE(births_.wish(kSize).alignment, 0u);
  EXPECT_FALSE(births_.wish(kSize).tail) << "an eighth more memory";

  births_.end();
  births_.begin(advice_unit(), "test", directory_.path());
  EXPECT_TRUE(births_.wish(large).tail) << "in the next run from the start";
}

TEST_F(BirthAdviceTest, ItHasNoTailWhereAddressesAreFew) {
  const std::size_t large = (std::size_t{64} << 20) + page_size();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_DATA, &before), 0);
  rlimit limited = before;
  limited.rlim_cur = std::min<rlim_t>(before.rlim_max, RLIM_INFINITY - 1);
  ASSERT_EQ(::setrlimit(RLIMIT_DATA, &limited), 0);
  births_.begin(advice_unit(), "test", directory_.path());
  EXPECT_EQ(::setrlimit(RLIMIT_DATA, &before), 0);
  for (int i = 0; i < 2; ++i) {
    const Range mapping = appears(large);
    births_.registered(mapping, ticks_now(), true);
  }
  EXPECT_NE(births_.wish(large).alignment, 0u);
  EXPECT_FALSE(births_.wish(large).tail);
}

// Those may be used sparsely.
TEST_F(BirthAdviceTest, FewerAreAdvisedAtOnceThanWereRegistered) {
  use(kSize, 4);
  EXPECT_TRUE(is_advised(appears(kSize)));
  EXPECT_TRUE(is_advised(appears(kSize)));
  EXPECT_TRUE(is_advised(appears(kSize)));
  const Range last = appears(kSize);
  EXPECT_FALSE(is_advised(last));
  is_registered(last);
  EXPECT_TRUE(is_advised(appears(kSize)));
  EXPECT_FALSE(is_advised(appears(kSize)));
}

TEST_F(BirthAdviceTest, ASecondRegistrationOfAMappingCountsOnce) {
  const Range mapping = appears(kSize);
  for (int i = 0; i < 3; ++i) is_registered(mapping);
  EXPECT_FALSE(is_advised(appears(kSize)));
}

// The helper reads of registrations after the mappings have gone, and others have their place.
TEST_F(BirthAdviceTest, ARegistrationIsOfTheMappingThatWasThereThen) {
  const Range place = map(kSize);
  std::vector<Ticks> times;
  for (int i = 0; i < 3; ++i) {
    births_.appeared(place);
    times.push_back(ticks_now());
  }
  births_.registered(place, times[1]);
  births_.registered(place, times[0]);
  births_.registered(place, times[2]);
  EXPECT_TRUE(is_advised(appears(kSize)));
}

TEST_F(BirthAdviceTest, AnotherSizeIsNot) {
  use(kSize, 2);
  EXPECT_FALSE(is_advised(appears(kSize + page_size())));
  EXPECT_FALSE(is_advised(appears(2 * kSize)));
}

TEST_F(BirthAdviceTest, APartOfAMappingTeachesNothing) {
  const Range first = appears(2 * kSize);
  is_registered({first.begin, first.begin + kSize});
  const Range second = appears(2 * kSize);
  is_registered({second.begin, second.begin + kSize});
  EXPECT_FALSE(is_advised(appears(2 * kSize)));
}

TEST_F(BirthAdviceTest, MemoryOfUnknownOriginTeachesNothing) {
  for (int i = 0; i < 3; ++i) is_registered(map(kSize));
  EXPECT_FALSE(is_advised(appears(kSize)));
}

TEST_F(BirthAdviceTest, SmallMappingsAreLeftAlone) {
  const std::size_t small = BirthAdvice::kLeast - page_size();
  use(small, 3);
  EXPECT_FALSE(is_advised(appears(small)));
}

/// A run is over before another one begins.
class LaterRuns : public BirthAdviceTest {
 protected:
  /// Returns how many of so many mappings are advised in a run that registers the first few of them.
  int advised(int mappings, int registers, const char* command = "program input --option") {
    births_.begin(advice_unit(), command, directory_.path());
    std::vector<Range> all;
    for (int i = 0; i < mappings; ++i) {
      all.push_back(map(kSize));
      births_.appeared(all.back());
    }
    for (int i = 0; i < registers; ++i) births_.registered(all[static_cast<std::size_t>(i)], ticks_now());
    births_.end();
    return static_cast<int>(std::ranges::count_if(all, is_advised));
  }
};

TEST_F(LaterRuns, KnowTheSizesFromTheStart) {
  EXPECT_EQ(advised(1, 1), 0);
  EXPECT_EQ(advised(1, 1, "program input --other"), 1);
  EXPECT_EQ(advised(1, 0, "program other-input"), 0);
  EXPECT_EQ(advised(1, 0, "program"), 0);
}

TEST_F(LaterRuns, AdviseAsManyAtOnceAsWereRegistered) {
  EXPECT_EQ(advised(3, 3), 0);
  EXPECT_EQ(advised(5, 5), 3);
  EXPECT_EQ(advised(6, 6), 5);
}

TEST_F(LaterRuns, LeaveASizeAloneThatIsRegisteredInPart) {
  EXPECT_EQ(advised(3, 3), 0);
  EXPECT_EQ(advised(3, 2), 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(advised(3, 3), 0);
}

TEST_F(LaterRuns, ForgetASizeThatIsNotRegisteredAnyMore) {
  EXPECT_EQ(advised(2, 2), 0);
  EXPECT_EQ(advised(2, 0), 2);
  EXPECT_EQ(advised(2, 2), 0);
  EXPECT_EQ(advised(2, 2), 2);
}

TEST_F(LaterRuns, AreNotToldByARunThatWasCutShort) {
  births_.begin(advice_unit(), "program input", directory_.path());
  use(kSize, 2);
  EXPECT_EQ(advised(1, 1, "program input"), 0);
}

TEST_F(BirthAdviceTest, KnowsSoManySizesAtMost) {
  for (std::size_t i = 0; i < BirthAdvice::kMostSizes; ++i) use(kSize + i * page_size(), 2);
  use(2 * kSize, 2);
  EXPECT_TRUE(is_advised(appears(kSize)));
  EXPECT_FALSE(is_advised(appears(2 * kSize)));
}

TEST_F(BirthAdviceTest, ThreadsMapWhileTheHelperLooks) {
  constexpr int kThreads = 3, kEach = 2000;
  std::vector<Range> places;
  for (int i = 0; i < kThreads; ++i) places.push_back(map(kSize));
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (const Range place : places)
    threads.emplace_back([&, place] {
      for (int i = 0; i < kEach; ++i) births_.appeared(place);
      --running;
    });
  std::uint64_t registrations = 0;
  for (; running > 0; ++registrations) is_registered(places[registrations % kThreads]);
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(births_.advised_bytes() / kSize, registrations + KnownMappings::kMostAtOnce);
}

TEST_F(BirthAdviceTest, NoneWithoutHugepages) {
  BirthAdvice births;
  births.begin(0, "program", directory_.path());
  const Range first = map(kSize), second = map(kSize);
  for (int i = 0; i < 2; ++i) {
    births.appeared(first);
    births.registered(first, ticks_now());
  }
  births.appeared(second);
  EXPECT_FALSE(is_advised(second));
}

// glibc's realloc moves whole mappings.
TEST_F(BirthAdviceTest, AnAdvisedMappingMovesAndGrows) {
  use(kSize, 2);
  const Range mapping = appears(kSize);
  ASSERT_TRUE(is_advised(mapping));
  *reinterpret_cast<char*>(mapping.begin) = 7;
  void* const moved = ::mremap(reinterpret_cast<void*>(mapping.begin), kSize, 2 * kSize, MREMAP_MAYMOVE);
  ASSERT_NE(moved, MAP_FAILED);
  EXPECT_EQ(*static_cast<char*>(moved), 7);
  ::munmap(moved, 2 * kSize);
}

}  // namespace
}  // namespace pinion
