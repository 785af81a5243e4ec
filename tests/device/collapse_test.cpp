// Memory that is turned into hugepages, on the real kernel.
#include "device/kernel/collapse.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include "device/kernel/pin.h"

namespace pinion {
namespace {

/// Units of anonymous memory on ordinary pages, each byte of which tells its place.
class CollapseTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kUnits = 4;

  void SetUp() override {
    unit_ = collapse_unit();
    if (unit_ == 0) GTEST_SKIP() << "no transparent hugepages here";
    mapped_ = (kUnits + 1) * unit_;
    mapping_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapping_, MAP_FAILED);
    // On ordinary pages, without advice that the kernel's own thread would follow.
    ASSERT_EQ(::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
    const auto begin = (reinterpret_cast<Address>(mapping_) + unit_ - 1) / unit_ * unit_;
    units_ = {begin, begin + kUnits * unit_};
    for (Address at = units_.begin; at < units_.end; at += sizeof at) word(at) = at;
    ASSERT_EQ(::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
    if (!collapses(unit(0), unit_)) GTEST_SKIP() << "the kernel collapses nothing";
    if (!is_huge(unit(0))) GTEST_SKIP() << "the kernel shows no hugepages";
  }
  void TearDown() override {
    if (mapping_ != nullptr) ::munmap(mapping_, mapped_);
  }

  /// Collapses until so many bytes lie in hugepages: a page that another thread of the machine handles is
  /// passed over.
  bool collapses(Range range, std::size_t bytes) const {
    for (int tries = 0; tries < 200; ++tries) {
      if (collapse(range, files_).bytes == bytes) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  static Address& word(Address at) { return *reinterpret_cast<Address*>(at); }
  Range unit(std::size_t i) const { return {units_.begin + i * unit_, units_.begin + (i + 1) * unit_}; }
  bool is_huge(Range range) const { return end_of_hugepages(range, files_) == range.end; }
  bool has_its_contents() const {
    for (Address at = units_.begin; at < units_.end; at += sizeof at)
      if (word(at) != at) return false;
    return true;
  }

  const PageFiles files_;
  std::size_t unit_ = 0, mapped_ = 0;
  void* mapping_ = nullptr;
  Range units_;
};

TEST_F(CollapseTest, WholeUnitsLieInHugepagesWithTheirContents) {
  EXPECT_TRUE(collapses({units_.begin + page_size(), units_.end + page_size()}, (kUnits - 1) * unit_))
      << "the first one does not lie in the range whole";
  EXPECT_TRUE(is_huge(units_));
  EXPECT_TRUE(has_its_contents());
  const Collapse again = collapse(units_, files_);
  EXPECT_EQ(again.bytes, kUnits * unit_);
  EXPECT_EQ(again.made, 0u) << "all of it was done before";
}

TEST_F(CollapseTest, AbsentPagesStayAbsent) {
  void* const absent = reinterpret_cast<void*>(unit(2).begin + 7 * page_size());
  ASSERT_EQ(::madvise(absent, page_size(), MADV_DONTNEED), 0);
  EXPECT_TRUE(collapses(units_, (kUnits - 1) * unit_));
  unsigned char present = 1;
  ASSERT_EQ(::mincore(absent, page_size(), &present), 0);
  EXPECT_EQ(present & 1, 0);
  EXPECT_TRUE(is_huge(unit(1)) && is_huge(unit(3)));
  EXPECT_FALSE(is_huge(unit(2)));
}

TEST_F(CollapseTest, PagesSharedWithAChildAreLeftAlone) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte;
    _exit(::read(ends[0], &byte, 1) == 1 ? 0 : 1);
  }
  word(unit(1).begin) = unit(1).begin;  // this page is the parent's own
  EXPECT_EQ(collapse({unit(1).begin, units_.end}, files_).bytes, 0u) << "memory would double";
  EXPECT_EQ(::write(ends[1], "", 1), 1);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(ends[0]), ::close(ends[1]);
  EXPECT_TRUE(has_its_contents());
}

TEST_F(CollapseTest, PinnedPagesStayWhereTheyAre) {
  if (!pin_support().io_uring) GTEST_SKIP() << pin_support().io_uring_refused;
  const auto device = make_pin_device();
  const Range page{unit(2).begin, unit(2).begin + page_size()};
  const Registration pinned = device->register_range(page, Access::all, Actor::application);
  ASSERT_FALSE(pinned.error) << pinned.error.message;
  EXPECT_TRUE(collapses(units_, (kUnits - 1) * unit_));
  EXPECT_FALSE(is_huge(unit(2)));
  EXPECT_TRUE(is_huge(unit(3))) << "behind it";
  EXPECT_FALSE(device->deregister(pinned.key, Actor::application));
  EXPECT_TRUE(has_its_contents());
}

TEST_F(CollapseTest, MemoryOfFilesIsLeftAlone) {
  void* const shared = ::mmap(reinterpret_cast<void*>(unit(1).begin), unit_, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  std::memset(shared, 1, unit_);
  EXPECT_EQ(collapse(unit(1), files_).bytes, 0u);
}

TEST_F(CollapseTest, MemoryThatGoesMeanwhileIsNoHarm) {
  ASSERT_EQ(::munmap(reinterpret_cast<void*>(unit(2).begin), unit_), 0);
  EXPECT_TRUE(collapses(units_, (kUnits - 1) * unit_));
  const PageFiles none;
  EXPECT_EQ(collapse(unit(2), none).bytes, 0u);
}

TEST_F(CollapseTest, OthersWriteMeanwhile) {
  std::atomic<bool> stops{false};
  std::atomic<std::uint64_t> rounds{0};
  std::thread writer([&] {
    for (; !stops; ++rounds)
      for (Address at = units_.begin; at < units_.end; at += page_size()) word(at) = word(at) + 1;
  });
  for (int round = 0; round < 8; ++round) {
    ASSERT_EQ(::madvise(reinterpret_cast<void*>(unit(3).end - page_size()), page_size(), MADV_DONTNEED), 0);
    // The kernel maps the unit page by page from now on, and the writer brings the page back.
    collapse(units_, files_);
  }
  stops = true;
  writer.join();
  for (Address at = units_.begin; at < unit(2).end; at += page_size())
    ASSERT_EQ(word(at), at + rounds) << "a write was lost";
}

TEST(WaitsMatter, WhereAThreadIsRealTime) {
  if (waits_matter()) GTEST_SKIP() << "processors are set aside here";
  std::atomic<int> state{0};
  std::thread other([&] {
    const sched_param priority{1};
    state = ::sched_setscheduler(0, SCHED_FIFO, &priority) == 0 ? 1 : -1;
    while (state > 0) std::this_thread::yield();
  });
  while (state == 0) std::this_thread::yield();
  const bool is_real_time = state == 1, matters = waits_matter();
  state = -1;
  other.join();
  if (!is_real_time) GTEST_SKIP() << "no right to it";
  EXPECT_TRUE(matters);
}

}  // namespace
}  // namespace pinion
