// The process reads itself: whatever its children, its other threads and its sandbox do meanwhile.
#include "monitor/own_process.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "device/kernel/shared_files.h"
#include "monitor/mapping_reader.h"
#include "monitor/own_calls.h"
#include "support/in_child.h"
#include "support/system_call_filter.h"

namespace pinion {
namespace {

/// Moves the offset of each open file, as stdio does for half-read ones when a child ends.
void move_all_offsets() {
  for (int file = 3; file < 1024; ++file) ::lseek(file, 0, SEEK_SET);
}

TEST(MappingsOfThisProcess, AreWholeThoughAChildMovesOffsets) {
  // More lines than a buffer holds.
  constexpr std::size_t kPages = 64;
  void* const memory = ::mmap(nullptr, kPages * page_size(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  for (std::size_t i = 0; i < kPages; i += 2)
    ::mprotect(static_cast<char*>(memory) + i * page_size(), page_size(), PROT_NONE);
  std::vector<Range> undisturbed, disturbed;
  MappingReader first;
  for (Mapping mapping; first.next(mapping);) undisturbed.push_back(mapping.range);
  {
    MappingReader reader;
    for (Mapping mapping; reader.next(mapping);) {
      disturbed.push_back(mapping.range);
      if (disturbed.size() % 16 == 8) test::in_child(move_all_offsets);
    }
    EXPECT_FALSE(reader.failed());
  }
  for (std::size_t i = 1; i < disturbed.size(); ++i)
    ASSERT_LE(disturbed[i - 1].end, disturbed[i].begin) << "line " << i << " was read twice, or torn";
  EXPECT_GE(disturbed.size() + 8, undisturbed.size());
  ::munmap(memory, kPages * page_size());
}

TEST(MappingsOfThisProcess, HaveTheirFiles) {
  MappingReader reader;
  std::string path;
  bool found = false;
  for (Mapping mapping; reader.next(mapping, &path);)
    if (path.ends_with("own_process_test")) found = mapping.inode != 0 && mapping.device != 0;
  EXPECT_TRUE(found);
}

TEST(TextOfTheKernel, ComesLineByLine) {
  std::ifstream file("/proc/version");
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  std::string lines;
  KernelText text("/proc/version");
  for (std::string line; text.line(line);) lines += line + "\n";
  EXPECT_EQ(lines, whole);
  EXPECT_FALSE(text.failed());
  EXPECT_TRUE(KernelText("/proc/no such file").failed());
  EXPECT_EQ(kernel_number("/proc/sys/vm/max_map_count", 0), [] {
    std::uint64_t number = 0;
    std::ifstream("/proc/sys/vm/max_map_count") >> number;
    return number;
  }());
  EXPECT_EQ(kernel_number("/proc/version", 7), 7u) << "no number";
}

TEST(MemoryOfThisProcess, ThatHasGoneIsAnAnswer) {
  const std::size_t page = page_size();
  auto* const memory = static_cast<char*>(
      ::mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 5, 3 * page);
  std::vector<char> copy(3 * page);
  const auto at = reinterpret_cast<Address>(memory);
  EXPECT_EQ(read_memory(at, copy.data(), 3 * page), static_cast<long>(3 * page));
  ::mprotect(memory + page, page, PROT_NONE);
  EXPECT_EQ(read_memory(at, copy.data(), 3 * page), static_cast<long>(page)) << "up to the page";
  EXPECT_EQ(read_memory(at + page, copy.data(), page), -EFAULT);
  EXPECT_EQ(write_memory(at + page, copy.data(), page), -EFAULT);
  EXPECT_EQ(read_memory_without_rights(at + page, copy.data(), page), static_cast<long>(page));
  EXPECT_EQ(copy[7], 5);
  ::munmap(memory + page, page);
  EXPECT_EQ(read_memory(at + page, copy.data(), page), -EFAULT);
  EXPECT_EQ(read_memory_without_rights(at + page, copy.data(), page), -EFAULT);
  ::munmap(memory, 3 * page);
}

TEST(ASandboxWithoutProc, LeavesMappingsAndCodeUnknown) {
  test::in_child([] {
    ASSERT_TRUE(test::refuse_system_call(SYS_openat, EPERM));
    EXPECT_FALSE(for_each_mapping({0, ~Address{0}}, [](const Mapping&) {}));
    EXPECT_FALSE(look_at_loaded_code(std::size_t{1} << 40).complete);
    EXPECT_TRUE(others_can_cut_by_text({page_size(), 2 * page_size()})) << "such memory is not kept";
  });
}

}  // namespace
}  // namespace pinion
