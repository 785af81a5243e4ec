// Memory that may be pinned for writing, by the kernel's answer and by its text, which must agree.
#include "device/kernel/writable_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "support/hugepage_pool.h"
#include "support/program_device.h"

namespace pinion {
namespace {

using test::kPage;
using test::Memory;

/// Returns the refusal's code, and the first word that tells why.
void expect(Range range, int code, const char* why = "") {
  for (const Error& error : {check_writable_memory(range), check_writable_memory_by_text(range)}) {
    EXPECT_EQ(error.code, code) << error.message;
    EXPECT_NE(std::strstr(error.message, why), nullptr) << error.message;
  }
}

class File {
 public:
  File() : number_(::mkstemp(name_)) {
    ::unlink(name_);
    EXPECT_EQ(::ftruncate(number_, static_cast<off_t>(4 * kPage)), 0);
  }
  ~File() { ::close(number_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  Range map(int flags) const {
    void* const at = ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, flags, number_, 0);
    EXPECT_NE(at, MAP_FAILED);
    return Range::of(at, 4 * kPage);
  }

 private:
  char name_[64] = "/tmp/pinion_writable_XXXXXX";
  int number_;
};

void unmap(Range range) { ::munmap(reinterpret_cast<void*>(range.begin), range.bytes()); }

TEST(WritableMemory, MemoryOfTheProgramsOwnIs) {
  const Memory memory(4);
  expect(Range::of(memory.page(0) + 5, 3 * kPage), 0);
  int on_stack = 0;
  expect(Range::of(&on_stack, sizeof on_stack), 0);
  const std::unique_ptr<char[]> on_heap(new char[1000]);
  expect(Range::of(on_heap.get(), 1000), 0);
}

TEST(WritableMemory, SeveralMappingsAreLookedAt) {
  const Memory memory(6);
  ASSERT_EQ(::mprotect(memory.page(4), kPage, PROT_READ), 0);
  expect(Range::of(memory.page(0), 4 * kPage), 0);
  expect(Range::of(memory.page(0), 4 * kPage + 1), EFAULT, "not writable");
  expect(Range::of(memory.page(5), kPage), 0);
}

TEST(WritableMemory, UnmappedMemoryIsNot) {
  const Memory memory(8);
  ASSERT_EQ(::munmap(memory.page(4), kPage), 0);
  expect(Range::of(memory.page(3), 3 * kPage), EFAULT, "not mapped");
  expect(Range::of(memory.page(4), 2 * kPage), EFAULT, "not mapped");
  expect(Range::of(memory.page(3), kPage + 1), EFAULT, "not mapped");
  expect(Range::of(memory.page(5), kPage), 0);
  ASSERT_NE(::mmap(memory.page(4), kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
}

TEST(WritableMemory, AFileIsWhereItIsShared) {
  const File file;
  const Range shared = file.map(MAP_SHARED), own = file.map(MAP_PRIVATE);
  expect(shared, 0);
  expect(own, EFAULT, "private mapping of a file");
  unmap(shared);
  unmap(own);
}

TEST(WritableMemory, HugepagesAreNoFiles) {
  const test::HugepagePool pool(4);
  if (!pool.has_pages()) GTEST_SKIP() << "no hugepages can be reserved here";
  const test::HugetlbMemory memory(2 * test::kHugepageBytes, nullptr, MAP_PRIVATE);
  ASSERT_TRUE(memory.is_mapped());
  expect(memory.range(), 0);
}

}  // namespace
}  // namespace pinion
