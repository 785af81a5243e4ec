// Mapped files that other users can cut, by the kernel's answer and by its text, which must agree.
#include "device/kernel/shared_files.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "support/program_device.h"

namespace pinion {
namespace {

using test::kPage;
using test::Memory;

class File {
 public:
  explicit File(mode_t mode) : number_(::mkstemp(name_)) {
    EXPECT_EQ(::ftruncate(number_, static_cast<off_t>(4 * kPage)), 0);
    EXPECT_EQ(::fchmod(number_, mode), 0);
  }
  ~File() {
    ::close(number_);
    ::unlink(name_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const char* name() const { return name_; }
  int number() const { return number_; }

 private:
  char name_[64] = "/tmp/pinion shared_XXXXXX";
  int number_;
};

class Mapped {
 public:
  Mapped(int file, int flags, int protection = PROT_READ | PROT_WRITE)
      : at_(::mmap(nullptr, 4 * kPage, protection, flags, file, 0)) {
    EXPECT_NE(at_, MAP_FAILED);
  }
  ~Mapped() { ::munmap(at_, 4 * kPage); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  Range range() const { return Range::of(at_, 4 * kPage); }

 private:
  void* const at_;
};

void expect(Range range, bool cuttable) {
  EXPECT_EQ(others_can_cut(range), cuttable);
  EXPECT_EQ(others_can_cut_by_text(range), cuttable);
}

TEST(SharedFiles, ThoseThatOthersCanWriteTo) {
  for (const mode_t mode : {0666, 0662, 0602}) {
    const File file(mode);
    const Mapped mapped(file.number(), MAP_SHARED);
    expect(mapped.range(), true);
    expect({mapped.range().begin + kPage, mapped.range().begin + 2 * kPage}, true);
    const Mapped for_reading(file.number(), MAP_SHARED, PROT_READ);
    expect(for_reading.range(), true);
  }
  const File for_others_to_read(0644);
  const Mapped mapped(for_others_to_read.number(), MAP_SHARED);
  expect(mapped.range(), false);
}

TEST(SharedFiles, AGroupWithTheOwnersNumberIsTheOwnersAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to any group";
  for (const mode_t mode : {0664, 0620}) {
    const File file(mode);
    const Mapped mapped(file.number(), MAP_SHARED);
    ASSERT_EQ(::fchown(file.number(), 0, 0), 0);
    expect(mapped.range(), false);
    ASSERT_EQ(::fchown(file.number(), 0, 1), 0);
    expect(mapped.range(), true);
  }
}

TEST(SharedFiles, ThoseOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const File file(0600);
  const Mapped mapped(file.number(), MAP_SHARED);
  expect(mapped.range(), false);
  ASSERT_EQ(::fchown(file.number(), 1, 0), 0);
  expect(mapped.range(), true);
}

TEST(SharedFiles, PrivateMappingsAndFilesWithoutANameAreOurs) {
  const File file(0666);
  const Mapped own(file.number(), MAP_PRIVATE);
  expect(own.range(), false);
  const Mapped mapped(file.number(), MAP_SHARED);
  expect(mapped.range(), true);
  ASSERT_EQ(::unlink(file.name()), 0);
  expect(mapped.range(), false);
  const int nameless = ::memfd_create("shared_files_test", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(nameless, static_cast<off_t>(4 * kPage)), 0);
  const Mapped of_memfd(nameless, MAP_SHARED);
  ::close(nameless);
  expect(of_memfd.range(), false);
  const Mapped anonymous(-1, MAP_SHARED | MAP_ANONYMOUS);
  expect(anonymous.range(), false);
  const Memory memory(4);
  expect(Range::of(memory.page(0), 4 * kPage), false);
}

}  // namespace
}  // namespace pinion
