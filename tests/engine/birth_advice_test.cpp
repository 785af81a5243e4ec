#include "engine/birth_advice.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

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
  /// As the kernel has it.
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
  }

  BirthAdvice births_{advice_unit()};

 private:
  std::vector<Range> mappings_;
};

TEST_F(BirthAdviceTest, ASizeThatWasRegisteredWholeIsAdvised) {
  const Range first = appears(kSize);
  EXPECT_FALSE(is_advised(first));
  // A block of malloc's lies behind its header.
  births_.registered({first.begin + 16, first.end - 100});
  EXPECT_FALSE(is_advised(first));
  EXPECT_TRUE(is_advised(appears(kSize)));
  EXPECT_EQ(births_.advised_bytes(), kSize);
}

TEST_F(BirthAdviceTest, AnotherSizeIsNot) {
  const Range first = appears(kSize);
  births_.registered(first);
  EXPECT_FALSE(is_advised(appears(kSize + page_size())));
  EXPECT_FALSE(is_advised(appears(2 * kSize)));
}

TEST_F(BirthAdviceTest, APartOfAMappingTeachesNothing) {
  const Range first = appears(2 * kSize);
  births_.registered({first.begin, first.begin + kSize});
  EXPECT_FALSE(is_advised(appears(2 * kSize)));
}

TEST_F(BirthAdviceTest, MemoryOfUnknownOriginTeachesNothing) {
  births_.registered(map(kSize));
  EXPECT_FALSE(is_advised(appears(kSize)));
}

TEST_F(BirthAdviceTest, SmallMappingsAreLeftAlone) {
  const std::size_t small = BirthAdvice::kLeast - page_size();
  births_.registered(appears(small));
  EXPECT_FALSE(is_advised(appears(small)));
}

TEST_F(BirthAdviceTest, LaterRunsOfTheProgramKnowItsSizesFromTheStart) {
  const TemporaryDirectory directory;
  births_.begin("program input --option", directory.path());
  births_.registered(appears(kSize));
  const auto is_advised_in = [&](const char* command) {
    BirthAdvice births(advice_unit());
    births.begin(command, directory.path());
    const Range mapping = map(kSize);
    births.appeared(mapping);
    return is_advised(mapping);
  };
  EXPECT_TRUE(is_advised_in("program input --option"));
  EXPECT_TRUE(is_advised_in("program input --other"));
  EXPECT_FALSE(is_advised_in("program other-input"));
  EXPECT_FALSE(is_advised_in("program"));
}

TEST_F(BirthAdviceTest, KnowsSoManySizesAtMost) {
  for (std::size_t i = 0; i < BirthAdvice::kMostSizes; ++i)
    births_.registered(appears(kSize + i * page_size()));
  births_.registered(appears(2 * kSize));
  EXPECT_TRUE(is_advised(appears(kSize)));
  EXPECT_FALSE(is_advised(appears(2 * kSize)));
}

TEST_F(BirthAdviceTest, NoneWithoutHugepages) {
  BirthAdvice births(0);
  births.begin("program");
  const Range first = map(kSize), second = map(kSize);
  births.appeared(first);
  births.registered(first);
  births.appeared(second);
  EXPECT_FALSE(is_advised(second));
}

// glibc's realloc moves whole mappings.
TEST_F(BirthAdviceTest, AnAdvisedMappingMovesAndGrows) {
  births_.registered(appears(kSize));
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
