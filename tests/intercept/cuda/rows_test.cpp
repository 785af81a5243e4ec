// Copies in rows, in layers and in batches, from outside (program.h): what lies between their rows is none of
// theirs.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "base/machine_memory.h"
#include "intercept/cuda/program.h"
#include "intercept/cuda/shapes.h"

namespace pinion::test {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kRow = 64 * kKiB;
constexpr unsigned kHostType = 1, kDeviceType = 2;

/// Maps memory at an address; null: something is there.
char* map_at(Address address, std::size_t bytes) {
  void* const mapped = ::mmap(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
}

class CudaRows : public CudaProgram {
 protected:
  void SetUp() override {
    CudaProgram::SetUp();
    if (!IsSkipped()) madeUpSetLongestWait(20'000);
  }

  /// Pinion's pinned ring, once copies were staged.
  Range find_ring() {
    constexpr std::size_t kRingBytes = 32 * kMiB;
    Memory memory(16 * kMiB);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(cuMemcpyHtoD_v2(device_, memory.data(), memory.bytes()), kSuccess);
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      Address begin = 0, end = 0;
      if (std::sscanf(line.c_str(), "%lx-%lx rw-p", &begin, &end) != 2) continue;
      for (Address at = begin; at < end; at += kMiB) {
        const void* first = nullptr;
        std::size_t bytes = 0;
        if (madeUpRegistration(reinterpret_cast<void*>(at), &first, &bytes) != 0 && bytes == kRingBytes)
          return Range::of(first, bytes);
      }
    }
    return {};
  }
  /// Memory of the program's before the range, and behind it.
  static char* map_before(Range range, std::size_t bytes) {
    char* mapped = nullptr;
    for (Address at = range.begin - bytes; mapped == nullptr; at -= kRow) mapped = map_at(at, bytes);
    return mapped;
  }
  static char* map_behind(Range range, std::size_t bytes) {
    char* mapped = nullptr;
    for (Address at = range.end; mapped == nullptr; at += kRow) mapped = map_at(at, bytes);
    return mapped;
  }
  static Copy2D rows_to(DevicePointer device, const char* host, std::size_t pitch, std::size_t height) {
    Copy2D copy{};
    copy.source.type = kHostType, copy.source.host = host, copy.source.pitch = pitch;
    copy.destination.type = kDeviceType, copy.destination.device = device, copy.destination.pitch = kRow;
    copy.width = kRow, copy.height = height;
    return copy;
  }
};

TEST_F(CudaRows, RowsOnBothSidesOfPinionsRingAreCopied) {
  const Range ring = find_ring();
  ASSERT_FALSE(ring.empty());
  char *const before = map_before(ring, kRow), *const behind = map_behind(ring, kRow);
  std::memset(before, 3, kRow);
  std::memset(behind, 4, kRow);
  const Copy2D copy = rows_to(device_, before, static_cast<std::size_t>(behind - before), 2);
  ASSERT_EQ(cuMemcpy2D_v2(&copy), kSuccess);
  EXPECT_TRUE(device_holds(kRow, 3));
  EXPECT_TRUE(Memory::holds(madeUpDeviceBytes(device_ + kRow), kRow, 4));
}

TEST_F(CudaRows, ABatchIntoAnArrayOfSmallElementsBesidePinionsRingIsCopied) {
  const Range ring = find_ring();
  ASSERT_FALSE(ring.empty());
  // Elements of 16 bytes would reach into the ring.
  char* const before = map_before(ring, kBytes);
  std::memset(before, 5, kBytes);
  void* array = nullptr;
  constexpr int kUnsignedByte = 1;
  constexpr std::size_t kWidth = 4 * kKiB, kHeight = kBytes / kWidth;
  const ArrayShape shape{
      .width = kWidth, .height = kHeight, .depth = 1, .format = kUnsignedByte, .channels = 1, .flags = 0};
  ASSERT_EQ(cuArray3DCreate_v2(&array, &shape), kSuccess);
  BatchCopy copy{};
  copy.source.type = 1, copy.source.memory.pointer = reinterpret_cast<DevicePointer>(before);
  copy.destination.type = 2, copy.destination.array.array = array;
  copy.width = kWidth, copy.height = kHeight, copy.depth = 1;
  copy.access_order = 1;
  ASSERT_EQ(cuMemcpy3DBatchAsync_v2(1, &copy, 0, stream_), kSuccess);
  ASSERT_EQ(cuStreamSynchronize(stream_), kSuccess);
  Memory back(kBytes);
  ASSERT_EQ(cuMemcpyAtoH_v2(back.data(), array, 0, kBytes), kSuccess);
  EXPECT_TRUE(back.holds(5));
}

TEST_F(CudaRows, ABufferBetweenTheRowsStaysRegistered) {
  Memory memory(3 * kBytes);
  char* const between = memory.data() + kBytes;
  for (int i = 0; i < 400 && !is_registered(between); ++i) {
    ASSERT_EQ(cuMemcpyHtoD_v2(device_, between, kBytes), kSuccess);
    ::usleep(1000);
  }
  ASSERT_TRUE(is_registered(between));
  memory.fill(6);
  const Copy2D copy = rows_to(device_, memory.data(), 2 * kBytes, 2);
  ASSERT_EQ(cuMemcpy2D_v2(&copy), kSuccess);
  EXPECT_TRUE(device_holds(2 * kRow, 6));
  EXPECT_TRUE(is_registered(between));
}

TEST_F(CudaRows, RowsFurtherApartThanTheMachineHasMemoryAreCopied) {
  const std::size_t far = 2 * machine_memory();
  void* const mapped = ::mmap(nullptr, far + kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) GTEST_SKIP() << "addresses or their charge are limited";
  char* const first = static_cast<char*>(mapped);
  for (int i = 0; i < 400 && !is_registered(first); ++i) {
    ASSERT_EQ(cuMemcpyHtoD_v2(device_, first, kBytes), kSuccess);
    ::usleep(1000);
  }
  ASSERT_TRUE(is_registered(first));
  std::memset(first + kMiB, 7, kRow);
  std::memset(first + kMiB + far, 8, kRow);
  const Copy2D copy = rows_to(device_, first + kMiB, far, 2);
  EXPECT_EQ(cuMemcpy2D_v2(&copy), kSuccess);
  EXPECT_TRUE(device_holds(kRow, 7));
  EXPECT_TRUE(Memory::holds(madeUpDeviceBytes(device_ + kRow), kRow, 8));
  ::munmap(mapped, far + kBytes);
}

}  // namespace
}  // namespace pinion::test
