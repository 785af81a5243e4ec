#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "monitor/memory_calls.h"

namespace pinion {
namespace {

constexpr std::size_t kBytes = std::size_t{16} << 20;
constexpr Address kPlace = Address{1} << 32;

NewMapping mapped(Address wish, int protection, int flags) {
  return appeared_memory(SYS_mmap, arguments_of(wish, kBytes, protection, flags, -1, 0),
                         static_cast<long>(kPlace));
}

TEST(AppearedMemory, IsPlainWithoutFurtherWishes) {
  constexpr int kBoth = PROT_READ | PROT_WRITE, kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;
  const NewMapping plain = mapped(0, kBoth, kAnonymous);
  EXPECT_EQ(plain.range, (Range{kPlace, kPlace + kBytes}));
  EXPECT_TRUE(plain.plain);
  EXPECT_FALSE(mapped(0, PROT_READ, kAnonymous).plain);
  EXPECT_FALSE(mapped(0, kBoth, kAnonymous | MAP_NORESERVE).plain);
  EXPECT_FALSE(mapped(0, kBoth, MAP_SHARED | MAP_ANONYMOUS).plain);
  EXPECT_FALSE(mapped(0, kBoth, MAP_PRIVATE).plain);
}

// Beside a neighbour, for an mremap of both, which takes mappings that have merged.
TEST(AppearedMemory, IsNotPlainWhereItsPlaceIsWishedFor) {
  EXPECT_FALSE(mapped(kPlace, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS).plain);
}

}  // namespace
}  // namespace pinion
