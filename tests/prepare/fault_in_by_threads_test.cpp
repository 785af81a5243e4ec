// Large memory that the program registers itself is faulted in by threads beforehand, and nothing else is.
#include "prepare/fault_in_by_threads.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "node/cores.h"
#include "support/in_child.h"

namespace pinion {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kBytes = 96 * kMiB;

class Mapped {
 public:
  explicit Mapped(std::size_t bytes, int rights = PROT_READ | PROT_WRITE)
      : bytes_(bytes),
        begin_(static_cast<char*>(::mmap(nullptr, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    ::madvise(begin_, bytes, MADV_NOHUGEPAGE);
  }
  ~Mapped() { ::munmap(begin_, bytes_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  Range range() const { return Range::of(begin_, bytes_); }
  char* begin() const { return begin_; }

 private:
  std::size_t bytes_;
  char* begin_;
};

std::size_t present_bytes(Range range) {
  std::vector<unsigned char> flags(range.pages());
  EXPECT_EQ(::mincore(reinterpret_cast<void*>(range.begin), range.bytes(), flags.data()), 0);
  return page_size() * static_cast<std::size_t>(std::count_if(flags.begin(), flags.end(),
                                                              [](unsigned char flag) { return flag & 1; }));
}

class FaultInByThreads : public ::testing::Test {
 protected:
  void SetUp() override {
    if (node::cpus_of_own_threads().count() < 2) GTEST_SKIP() << "one core";
  }
};

TEST_F(FaultInByThreads, MakesUntouchedMemoryPresentAndKeepsContents) {
  const Mapped memory(kBytes);
  for (std::size_t at = 0; at < kBytes; at += 7 * kMiB) memory.begin()[at + 5] = 'x';
  EXPECT_EQ(fault_in_by_threads(memory.range(), true), kBytes);
  EXPECT_EQ(present_bytes(memory.range()), kBytes);
  for (std::size_t at = 0; at < kBytes; at += 4096)
    for (std::size_t i = 0; i < 8; ++i)
      ASSERT_EQ(memory.begin()[at + i], at % (7 * kMiB) == 0 && i == 5 ? 'x' : 0) << at;
}

TEST_F(FaultInByThreads, WholePagesOfUnevenRangesAreTaken) {
  const Mapped memory(kBytes);
  const Range inner{memory.range().begin + 4096 + 100, memory.range().end - 4096 - 7};
  EXPECT_EQ(fault_in_by_threads(inner, true), kBytes - 2 * 4096);
  EXPECT_EQ(present_bytes(memory.range()), kBytes - 2 * 4096);
}

TEST_F(FaultInByThreads, OtherMemoryIsLeftAlone) {
  const Mapped small(63 * kMiB), for_reading(kBytes), read_only(kBytes, PROT_READ);
  EXPECT_EQ(fault_in_by_threads(small.range(), true), 0u);
  EXPECT_EQ(fault_in_by_threads(for_reading.range(), false), 0u);
  EXPECT_EQ(fault_in_by_threads(read_only.range(), true), 0u);
  for (const Mapped* memory : {&small, &for_reading, &read_only})
    EXPECT_EQ(present_bytes(memory->range()), 0u);
}

TEST_F(FaultInByThreads, TouchedMemoryTakesNoThreads) {
  const Mapped memory(kBytes);
  std::memset(memory.begin(), 1, 60 * kMiB);
  EXPECT_EQ(fault_in_by_threads(memory.range(), true), 0u) << "mostly present";
}

TEST_F(FaultInByThreads, UnmappedMemoryIsLeftToTheRegistration) {
  const Mapped memory(kBytes);
  ::munmap(memory.begin() + 48 * kMiB, kBytes - 48 * kMiB);
  EXPECT_EQ(fault_in_by_threads(memory.range(), true), 0u);
}

TEST_F(FaultInByThreads, FilesAreNeverTouched) {
  const int file = ::memfd_create("file", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(file, kBytes), 0);
  for (const int kind : {MAP_PRIVATE, MAP_SHARED}) {
    const Mapped memory(2 * kBytes);
    void* const in_between = memory.begin() + kBytes / 2;
    ASSERT_EQ(::mmap(in_between, kBytes, PROT_READ | PROT_WRITE, kind | MAP_FIXED, file, 0), in_between);
    EXPECT_EQ(fault_in_by_threads(memory.range(), true), kBytes) << "around the file";
    EXPECT_EQ(present_bytes(Range::of(in_between, kBytes)), 0u);
    EXPECT_EQ(present_bytes(memory.range()), kBytes);
  }
  ::close(file);
}

/// For a process that has one core from its start.
TEST(FaultInByOneCore, DISABLED_IsLeftToTheRegistration) {
  const Mapped memory(kBytes);
  EXPECT_EQ(fault_in_by_threads(memory.range(), true), 0u);
  EXPECT_EQ(present_bytes(memory.range()), 0u);
}

TEST(FaultInByOneCore, IsLeftToTheRegistration) {
  const pid_t child = ::fork();
  if (child == 0) {
    node::CpuSet one;
    const node::CpuSet all = node::cpus_of(0);
    for (std::size_t cpu = 0; cpu < all.size() && one.none(); ++cpu) one[cpu] = all[cpu];
    node::run_on(one);
    ::execl("/proc/self/exe", "one-core", "--gtest_also_run_disabled_tests",
            "--gtest_filter=FaultInByOneCore.DISABLED_*", nullptr);
    ::_exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace pinion
