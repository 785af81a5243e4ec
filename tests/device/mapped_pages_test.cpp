// The pages of mappings, as the kernel states them: by its answer and by its text, which must agree.
#include "device/kernel/mapped_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <unistd.h>

#include "support/eventually.h"
#include "support/hugepage_pool.h"
#include "support/in_child.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

using test::HugepagePool;
using test::HugetlbMemory;
using test::kHugepageBytes;

#define NEEDS_POOL(pool) \
  if (!(pool).has_pages()) GTEST_SKIP() << "no hugepages can be reserved here"

/// Returns the page of the byte there, by the text of the maps; by the kernel's answer too, where it gives
/// one. It is the system's page where no larger one is known.
LargeRange page_at(const void* at) {
  const Range byte = Range::of(at, 1);
  LargeRange page = read_large_mappings().around(byte);
  if (page.empty()) page = {byte.to_pages(), page_size()};
  const KeptFile maps(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  PagedMemory answer;
  if (ask_for_mapping(maps.get(), byte.begin, answer)) {
    EXPECT_EQ(answer.page_bytes, page.page_bytes);
    EXPECT_TRUE(answer.range.contains(page.range));
  }
  return page;
}

TEST(MappedPages, OrdinaryMemory) {
  int on_stack = 0;
  EXPECT_EQ(page_at(&on_stack).page_bytes, page_size());
  EXPECT_EQ(page_at(reinterpret_cast<const void*>(&read_large_mappings)).page_bytes, page_size())
      << "a file's";
  EXPECT_EQ(page_at(nullptr).page_bytes, page_size()) << "unmapped";
}

TEST(MappedPages, AnonymousMemoryOfThePool) {
  const HugepagePool pool(4);
  NEEDS_POOL(pool);
  for (const int flags : {MAP_PRIVATE, MAP_SHARED}) {
    const HugetlbMemory memory(2 * kHugepageBytes, nullptr, flags);
    ASSERT_TRUE(memory.is_mapped());
    const LargeRange page = page_at(reinterpret_cast<void*>(memory.range().begin + 5000));
    EXPECT_EQ(page.page_bytes, kHugepageBytes);
    EXPECT_EQ(page.range, memory.part(0, kHugepageBytes));
  }
}

TEST(MappedPages, SharedMemoryOfThePool) {
  const HugepagePool pool(4);
  NEEDS_POOL(pool);
  const int file = ::memfd_create("hugepages", MFD_CLOEXEC | MFD_HUGETLB);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::ftruncate(file, kHugepageBytes), 0);
  void* const mapped = ::mmap(nullptr, kHugepageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(page_at(mapped).page_bytes, kHugepageBytes);
  ::munmap(mapped, kHugepageBytes);

  const int segment = ::shmget(IPC_PRIVATE, kHugepageBytes, IPC_CREAT | SHM_HUGETLB | 0600);
  if (segment < 0) GTEST_SKIP() << "no System V segment of hugepages can be had";
  void* const attached = ::shmat(segment, nullptr, 0);
  ::shmctl(segment, IPC_RMID, nullptr);
  ASSERT_NE(attached, reinterpret_cast<void*>(-1));
  EXPECT_EQ(page_at(attached).page_bytes, kHugepageBytes);
  ::shmdt(attached);
}

TEST(MappedPages, FilesOfAMountedHugetlbfs) {
  const HugepagePool pool(2);
  NEEDS_POOL(pool);
  const TemporaryDirectory directory;
  if (::mount("none", directory.path().c_str(), "hugetlbfs", 0, nullptr) != 0)
    GTEST_SKIP() << "no hugetlbfs can be mounted";
  const std::string name = directory.path() + "/file";
  const int file = ::open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  void* const mapped = ::mmap(nullptr, kHugepageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  const std::size_t with_name = mapped == MAP_FAILED ? 0 : page_at(mapped).page_bytes;
  ::unlink(name.c_str());
  const std::size_t without = mapped == MAP_FAILED ? 0 : page_at(mapped).page_bytes;
  if (mapped != MAP_FAILED) ::munmap(mapped, kHugepageBytes);
  EXPECT_EQ(::umount(directory.path().c_str()), 0);
  EXPECT_EQ(with_name, kHugepageBytes);
  EXPECT_EQ(without, kHugepageBytes);
}

TEST(MappedPages, PagesOfAGibibyte) {
  constexpr std::size_t kGiB = std::size_t{1} << 30;
  const HugepagePool pool(1, kGiB);
  NEEDS_POOL(pool);
  void* const mapped = ::mmap(nullptr, kGiB, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (30 << MAP_HUGE_SHIFT), -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(page_at(mapped).page_bytes, kGiB);
  MappedPages pages;
  EXPECT_EQ(pages.around(Range::of(static_cast<char*>(mapped) + 100, 100)).range, Range::of(mapped, kGiB));
  ::munmap(mapped, kGiB);
}

/// Reads by questions, and by the text as on older kernels.
using BothWays = ::testing::TestWithParam<bool>;
INSTANTIATE_TEST_SUITE_P(MappedPages, BothWays, ::testing::Bool());

TEST_P(BothWays, ARequestIsRoundedInThePoolsMemoryAlone) {
  const HugepagePool pool(4);
  NEEDS_POOL(pool);
  const HugetlbMemory memory(4 * kHugepageBytes);
  ASSERT_TRUE(memory.is_mapped());
  MappedPages pages(GetParam());
  const LargeRange large = pages.around(memory.part(kHugepageBytes + 100, kHugepageBytes));
  EXPECT_EQ(large.range, memory.part(kHugepageBytes, 2 * kHugepageBytes));
  EXPECT_EQ(large.page_bytes, kHugepageBytes);
  void* const ordinary =
      ::mmap(nullptr, 4 * kHugepageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(ordinary, MAP_FAILED);
  ::madvise(ordinary, 4 * kHugepageBytes, MADV_HUGEPAGE);
  *static_cast<char*>(ordinary) = 1;
  EXPECT_TRUE(pages.around(Range::of(ordinary, 100)).empty()) << "transparent hugepages are the kernel's";
  ::munmap(ordinary, 4 * kHugepageBytes);
}

TEST_P(BothWays, AChildHasMappingsOfItsOwn) {
  const HugepagePool pool(4);
  NEEDS_POOL(pool);
  const HugetlbMemory memory(kHugepageBytes);
  ASSERT_TRUE(memory.is_mapped());
  MappedPages pages(GetParam());
  ASSERT_FALSE(pages.around(memory.part(1, 1)).empty());
  test::in_child([&] {
    const HugetlbMemory own(kHugepageBytes);  // the parent has nothing there
    ASSERT_TRUE(own.is_mapped());
    EXPECT_EQ(pages.around(own.part(1, 1)).range, own.range());
  });
  EXPECT_FALSE(pages.around(memory.part(1, 1)).empty());
}

// Soon, though not at once: the mappings are not read for each question.
TEST(MappedPages, AMappingThatIsMadeLaterIsSeen) {
  const HugepagePool pool(1);
  NEEDS_POOL(pool);
  MappedPages pages(false);
  int on_stack = 0;
  EXPECT_TRUE(pages.around(Range::of(&on_stack, 1)).empty());
  const HugetlbMemory memory(kHugepageBytes);
  ASSERT_TRUE(memory.is_mapped());
  EXPECT_TRUE(test::eventually([&] { return pages.around(memory.part(1, 1)).range == memory.range(); }));
}

TEST(MappedPages, APoolThatIsMadeLaterIsSeen) {
  MappedPages pages;
  int on_stack = 0;
  EXPECT_TRUE(pages.around(Range::of(&on_stack, 1)).empty());
  const HugepagePool pool(1);
  NEEDS_POOL(pool);
  const HugetlbMemory memory(kHugepageBytes);
  ASSERT_TRUE(memory.is_mapped());
  pages.look_again();
  EXPECT_EQ(pages.around(memory.part(1, 1)).range, memory.range());
}

}  // namespace
}  // namespace pinion
