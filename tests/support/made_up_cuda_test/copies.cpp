// Copies of the made-up driver: when they return, what they have read, and what registered ranges make of
// them.
#include "support/made_up_cuda_test/fixture.h"

namespace pinion::made_up_cuda {
namespace {

class MadeUpCopies : public MadeUpCuda {};

// ---- device memory ----

TEST_F(MadeUpCopies, DeviceMemoryCannotBeTouchedByItsAddress) {
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(device_) = 1, "");
}

TEST_F(MadeUpCopies, CopiesMoveContentsBothWays) {
  Pages source(kMiB, 7), target(kMiB);
  ASSERT_EQ(cuda().copy_in(device_, source.data(), kMiB), kSuccess);
  EXPECT_TRUE(device_holds(7, kMiB));
  ASSERT_EQ(cuda().copy_out(target.data(), device_, kMiB), kSuccess);
  EXPECT_TRUE(target.all(7));
}

TEST_F(MadeUpCopies, ACopyBeyondAnAllocationIsRefused) {
  Pages source(kMiB, 7);
  EXPECT_EQ(cuda().copy_in(device_ + kDeviceBytes - kKiB, source.data(), kMiB), 1);
}

TEST_F(MadeUpCopies, FreeMemoryCanBeSet) {
  std::size_t free = 0, total = 0;
  made_up().madeUpSetFreeMemory(3 * kMiB);
  ASSERT_EQ(cuda().memory_info(&free, &total), kSuccess);
  EXPECT_EQ(free, 3 * kMiB);
  DevicePointer more = 0;
  EXPECT_EQ(cuda().allocate(&more, 4 * kMiB), 2);
  made_up().madeUpSetFreeMemory(std::size_t{60} << 30);
}

// ---- when copies return, and what they have read ----

TEST_F(MadeUpCopies, ASmallPageableCopyReturnsAtOnceWithItsSourceRead) {
  Pages source(2 * kMiB, 1);
  close_gate(stream_);
  ASSERT_EQ(cuda().copy_in_async(device_, source.data(), 2 * kMiB, stream_), kSuccess);
  source.fill(2);
  open_gate(stream_);
  ASSERT_EQ(cuda().stream_synchronize(stream_), kSuccess);
  EXPECT_TRUE(device_holds(1, 2 * kMiB));
}

TEST_F(MadeUpCopies, ALargerPageableCopyWaitsForItsStream) {
  Pages source(2 * kMiB + 4096, 1);
  close_gate(stream_);
  EXPECT_TRUE(
      waits(stream_, [&] { return cuda().copy_in_async(device_, source.data(), 2 * kMiB + 1, stream_); }));
}

TEST_F(MadeUpCopies, StagingMemoryIsFinite) {
  Pages source(kMiB, 1);
  close_gate(stream_);
  for (int i = 0; i < 63; ++i)
    ASSERT_EQ(cuda().copy_in_async(device_, source.data(), 64 * kKiB, stream_), kSuccess);
  EXPECT_TRUE(
      waits(stream_, [&] { return cuda().copy_in_async(device_, source.data(), 64 * kKiB, stream_); }));
  ASSERT_EQ(cuda().stream_synchronize(stream_), kSuccess);
  close_gate(stream_);
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(cuda().copy_in_async(device_, source.data(), kMiB, stream_), kSuccess);
  EXPECT_TRUE(waits(stream_, [&] { return cuda().copy_in_async(device_, source.data(), kMiB, stream_); }));
}

TEST_F(MadeUpCopies, CopiesFromTheDeviceWaitAtEverySize) {
  Pages target(4096);
  close_gate(stream_);
  EXPECT_TRUE(waits(stream_, [&] { return cuda().copy_out_async(target.data(), device_, 64, stream_); }));
}

TEST_F(MadeUpCopies, SyncCopiesWaitForTheLegacyStreamAndForBlockingOnes) {
  Pages source(4096, 1);
  close_gate(kLegacyStream);
  EXPECT_TRUE(waits(kLegacyStream, [&] { return cuda().copy_in(device_, source.data(), 64); }));
  Stream blocking = nullptr;
  ASSERT_EQ(cuda().stream_create(&blocking, 0), kSuccess);
  close_gate(blocking);
  EXPECT_TRUE(waits(blocking, [&] { return cuda().copy_in(device_, source.data(), 64); }));
  close_gate(stream_);
  EXPECT_EQ(cuda().copy_in(device_, source.data(), 64), kSuccess);
  open_gate(stream_);
}

TEST_F(MadeUpCopies, APinnedCopyReturnsAtOnceAndReadsInItsTurn) {
  Pages source(4 * kMiB, 1);
  ASSERT_EQ(cuda().host_register(source.data(), 4 * kMiB, kPortable), kSuccess);
  close_gate(stream_);
  ASSERT_EQ(cuda().copy_in_async(device_, source.data(), 4 * kMiB, stream_), kSuccess);
  source.fill(2);
  open_gate(stream_);
  ASSERT_EQ(cuda().stream_synchronize(stream_), kSuccess);
  EXPECT_TRUE(device_holds(2, 4 * kMiB));
  ASSERT_EQ(cuda().host_unregister(source.data()), kSuccess);
}

TEST_F(MadeUpCopies, AStaleRegistrationShowsTheOldBytes) {
  if (!made_up().madeUpPins()) GTEST_SKIP() << "this machine pins no pages";
  Pages source(kMiB, 1);
  ASSERT_EQ(cuda().host_register(source.data(), kMiB, kPortable), kSuccess);
  source.map_anew(2);
  ASSERT_EQ(cuda().copy_in(device_, source.data(), kMiB), kSuccess);
  EXPECT_TRUE(device_holds(1, kMiB));
  EXPECT_EQ(cuda().host_register(source.data(), kMiB, kPortable), 712);
  ASSERT_EQ(cuda().host_unregister(source.data()), kSuccess);
  ASSERT_EQ(cuda().host_register(source.data(), kMiB, kPortable), kSuccess);
  ASSERT_EQ(cuda().copy_in(device_, source.data(), kMiB), kSuccess);
  EXPECT_TRUE(device_holds(2, kMiB));
  ASSERT_EQ(cuda().host_unregister(source.data()), kSuccess);
}

TEST_F(MadeUpCopies, APinnedCopyBackGoesToTheOldPages) {
  if (!made_up().madeUpPins()) GTEST_SKIP() << "this machine pins no pages";
  Pages target(kMiB, 1);
  ASSERT_EQ(cuda().set_bytes(device_, 9, kMiB), kSuccess);
  ASSERT_EQ(cuda().host_register(target.data(), kMiB, kPortable), kSuccess);
  ASSERT_EQ(cuda().copy_out(target.data(), device_, kMiB), kSuccess);
  EXPECT_TRUE(target.all(9));
  target.map_anew(2);
  ASSERT_EQ(cuda().copy_out(target.data(), device_, kMiB), kSuccess);
  EXPECT_TRUE(target.all(2));
  ASSERT_EQ(cuda().host_unregister(target.data()), kSuccess);
}

// ---- ranges registered in part ----

TEST_F(MadeUpCopies, RegistrationsAreExactRangesOfBytes) {
  Pages memory(4 * 4096);
  ASSERT_EQ(cuda().host_register(memory.data() + 100, 8000, 0), kSuccess);
  ASSERT_EQ(cuda().host_register(memory.data() + 8200, 3800, 0), kSuccess);
  EXPECT_EQ(cuda().host_register(memory.data() + 8000, 200, 0), 712);
  EXPECT_EQ(cuda().host_unregister(memory.data() + 101), 1);
  EXPECT_EQ(cuda().host_unregister(memory.data()), 713);
  EXPECT_EQ(cuda().host_unregister(memory.data() + 100), kSuccess);
  EXPECT_EQ(cuda().host_unregister(memory.data() + 100), 713);
  EXPECT_EQ(cuda().host_unregister(memory.data() + 8200), kSuccess);
}

TEST_F(MadeUpCopies, TheFirstByteOfACopyDecides) {
  Pages memory(4 * kMiB, 1);
  char* const begin = memory.data() + kMiB;
  ASSERT_EQ(cuda().host_register(begin, kMiB, 0), kSuccess);
  ASSERT_EQ(cuda().host_register(begin + kMiB, kMiB, 0), kSuccess);
  EXPECT_EQ(cuda().copy_in(device_, begin + 100, kMiB), 1);
  EXPECT_EQ(cuda().copy_in_async(device_, begin + 2 * kMiB - 4, 8, stream_), 1);
  EXPECT_EQ(cuda().copy_in(device_, begin - 4, 2 * kMiB), kSuccess);
  EXPECT_EQ(cuda().copy_out(memory.data(), device_, 4 * kMiB), kSuccess);
  EXPECT_EQ(cuda().copy_in(device_, begin, kMiB), kSuccess);
  ASSERT_EQ(cuda().host_unregister(begin), kSuccess);
  ASSERT_EQ(cuda().host_unregister(begin + kMiB), kSuccess);
}

TEST_F(MadeUpCopies, UnusableMemoryCannotBeRegistered) {
  void* const nothing = ::mmap(nullptr, kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(cuda().host_register(nothing, kMiB, 0), 1);
  ASSERT_EQ(::mprotect(nothing, kMiB, PROT_READ), 0);
  EXPECT_EQ(cuda().host_register(nothing, kMiB, 0), 1);
  EXPECT_EQ(cuda().host_register(nothing, kMiB, gpu::kReadOnly), kSuccess);
  EXPECT_EQ(cuda().copy_in(device_, nothing, kMiB), kSuccess);
  EXPECT_EQ(cuda().copy_out(nothing, device_, kMiB), 1);
  EXPECT_EQ(cuda().host_unregister(nothing), kSuccess);
  ::munmap(nothing, kMiB);
}

TEST_F(MadeUpCopies, TheFirstByteDecidesOfRowsToo) {
  Pages memory(64 * kKiB, 3);
  ASSERT_EQ(cuda().host_register(memory.data(), 32 * kKiB, 0), kSuccess);
  EXPECT_EQ(cuda().copy_2d(&rows(memory.data(), 16)), kSuccess);
  EXPECT_EQ(cuda().copy_2d(&rows(memory.data(), 17)), 1);
  EXPECT_EQ(cuda().copy_2d_async(&rows(memory.data() + 16 * kKiB, 17), stream_), 1);
  EXPECT_EQ(cuda().copy_2d(&rows(memory.data() + 32 * kKiB, 16)), kSuccess);
  ASSERT_EQ(cuda().host_unregister(memory.data()), kSuccess);
}

// ---- copies of other shapes ----

TEST_F(MadeUpCopies, RowsAreMovedAndStagedAsRunsAre) {
  Pages memory(4 * kMiB + 4096, 3), target(4 * kMiB);
  close_gate(stream_);
  ASSERT_EQ(cuda().copy_2d_async(&rows(memory.data(), kMiB / kKiB * 2), stream_), kSuccess);
  memory.fill(4);
  open_gate(stream_);
  ASSERT_EQ(cuda().stream_synchronize(stream_), kSuccess);
  EXPECT_TRUE(device_holds(3, 2 * kMiB));
  close_gate(stream_);
  EXPECT_TRUE(waits(
      stream_, [&] { return cuda().copy_2d_async(&rows(memory.data(), kMiB / kKiB * 2 + 1), stream_); }));
  EXPECT_TRUE(device_holds(4, 2 * kMiB));
}

TEST_F(MadeUpCopies, BlocksOfThreeDimensionsKeepTheirPlaces) {
  Pages memory(24 * 256, 3);
  Copy3D shape;
  shape.source_type = gpu::kMemoryTypeHost;
  shape.source_host = memory.data();
  shape.source_x = 16;
  shape.source_pitch = 256;
  shape.source_height = 8;
  shape.target_type = gpu::kMemoryTypeDevice;
  shape.target_device = device_;
  shape.target_pitch = 128;
  shape.target_height = 4;
  shape.width = 128;
  shape.height = 4;
  shape.depth = 3;
  for (std::size_t slice = 0; slice < 3; ++slice) {
    for (std::size_t row = 0; row < 4; ++row)
      std::memset(memory.data() + (slice * 8 + row) * 256 + 16, static_cast<int>(10 * slice + row), 128);
  }
  ASSERT_EQ(call<Result(const Copy3D*)>("cuMemcpy3D_v2")(&shape), kSuccess);
  const auto* const data = static_cast<const char*>(made_up().madeUpDeviceBytes(device_));
  for (std::size_t slice = 0; slice < 3; ++slice) {
    for (std::size_t row = 0; row < 4; ++row) {
      EXPECT_EQ(data[(slice * 4 + row) * 128], static_cast<char>(10 * slice + row));
      EXPECT_EQ(data[(slice * 4 + row) * 128 + 127], static_cast<char>(10 * slice + row));
    }
  }
}

TEST_F(MadeUpCopies, ArraysTakeAndGiveRunsOfBytes) {
  struct {
    std::size_t width = 4096, height = 4;
    int format = 1;
    unsigned channels = 1;
  } shape;
  void* array = nullptr;
  Pages source(4096, 6), target(4096);
  ASSERT_EQ(call<Result(void**, const void*)>("cuArrayCreate_v2")(&array, &shape), kSuccess);
  const auto in = call<Result(void*, std::size_t, const void*, std::size_t)>("cuMemcpyHtoA_v2");
  const auto out = call<Result(void*, void*, std::size_t, std::size_t)>("cuMemcpyAtoH_v2");
  ASSERT_EQ(in(array, 8192, source.data(), 4096), kSuccess);
  ASSERT_EQ(out(target.data(), array, 8192, 4096), kSuccess);
  EXPECT_TRUE(target.all(6));
  EXPECT_EQ(in(array, 4 * 4096, source.data(), 1), 1);
  EXPECT_EQ(call<Result(void*)>("cuArrayDestroy")(array), kSuccess);
}

TEST_F(MadeUpCopies, UnifiedCopiesTellMemoryByItsAddress) {
  Pages source(kMiB, 5), target(kMiB);
  const auto copy = call<Result(DevicePointer, DevicePointer, std::size_t)>("cuMemcpy");
  const auto host = [](Pages& pages) { return reinterpret_cast<DevicePointer>(pages.data()); };
  ASSERT_EQ(copy(device_, host(source), kMiB), kSuccess);
  ASSERT_EQ(copy(device_ + kMiB, device_, kMiB), kSuccess);
  ASSERT_EQ(copy(host(target), device_ + kMiB, kMiB), kSuccess);
  EXPECT_TRUE(target.all(5));
}

TEST_F(MadeUpCopies, MemsetsReachTheDeviceAndRegisteredMemoryOnly) {
  Pages memory(kMiB, 1);
  const auto pointer = reinterpret_cast<DevicePointer>(memory.data());
  ASSERT_EQ(cuda().set_bytes(device_, 8, kMiB), kSuccess);
  EXPECT_TRUE(device_holds(8, kMiB));
  EXPECT_EQ(cuda().set_bytes(pointer, 8, kMiB), 1);
  ASSERT_EQ(cuda().host_register(memory.data(), kMiB, 0), kSuccess);
  ASSERT_EQ(cuda().set_bytes(pointer, 8, kMiB), kSuccess);
  EXPECT_TRUE(memory.all(8));
  const auto rows_of_words =
      call<Result(DevicePointer, std::size_t, unsigned, std::size_t, std::size_t)>("cuMemsetD2D32_v2");
  ASSERT_EQ(rows_of_words(device_, 64, 0x07070707, 4, 3), kSuccess);
  const auto* const data = static_cast<const char*>(made_up().madeUpDeviceBytes(device_));
  EXPECT_EQ(data[2 * 64 + 15], 7);
  EXPECT_EQ(data[2 * 64 + 16], 8);
  ASSERT_EQ(cuda().host_unregister(memory.data()), kSuccess);
}

TEST_F(MadeUpCopies, BatchesReadTheirSourcesAsTheAccessOrderPermits) {
  Pages source(kMiB, 1);
  close_gate(stream_);
  EXPECT_TRUE(waits(stream_, [&] { return batch(source.data(), 4096, 1, stream_); }));
  close_gate(stream_);
  ASSERT_EQ(batch(source.data(), 4096, 2, stream_), kSuccess);
  source.fill(2);
  open_gate(stream_);
  ASSERT_EQ(cuda().stream_synchronize(stream_), kSuccess);
  EXPECT_TRUE(device_holds(1, 4096)) << "a small one is read during the call";
  close_gate(stream_);
  ASSERT_EQ(batch(source.data(), kMiB, 2, stream_), kSuccess);
  source.fill(3);
  open_gate(stream_);
  ASSERT_EQ(cuda().stream_synchronize(stream_), kSuccess);
  EXPECT_TRUE(device_holds(3, kMiB)) << "a larger one after the return, against its order";
}

TEST_F(MadeUpCopies, ABatchOfSeveralIsReadAfterTheReturnOnAnIdleStream) {
  Pages source(4 * kMiB, 1);
  made_up().madeUpDelayBatch(50000);
  DevicePointer to[4], from[4];
  std::size_t bytes[4], first = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    to[i] = device_ + i * kMiB;
    from[i] = reinterpret_cast<DevicePointer>(source.data() + i * kMiB);
    bytes[i] = kMiB;
  }
  CopyAttributes attributes;
  attributes.source_access_order = 1;
  ASSERT_EQ(cuda().copy_batch_v2(to, from, bytes, 4, &attributes, &first, 1, stream_), kSuccess);
  source.fill(2);
  ASSERT_EQ(cuda().stream_synchronize(stream_), kSuccess);
  made_up().madeUpDelayBatch(1000);
  EXPECT_TRUE(device_holds(2, 4 * kMiB));
}

TEST_F(MadeUpCopies, BatchesTakeNeitherTheLegacyStreamNorACapture) {
  Pages source(kMiB, 1);
  EXPECT_EQ(batch(source.data(), kMiB, 2, kLegacyStream), 1);
  ASSERT_EQ(cuda().begin_capture(stream_, gpu::kCaptureRelaxed), kSuccess);
  EXPECT_NE(batch(source.data(), kMiB, 2, stream_), kSuccess);
}

TEST_F(MadeUpCopies, NullStreamsOfPerThreadNamesAreTheThreadsOwn) {
  Pages source(4096, 1);
  close_gate(kThreadStream);
  const auto in = call<Result(DevicePointer, const void*, std::size_t, Stream)>("cuMemcpyHtoDAsync_v2_ptsz");
  ASSERT_EQ(in(device_, source.data(), 4096, nullptr), kSuccess);
  EXPECT_EQ(made_up().madeUpPending(kThreadStream), 2U);
  EXPECT_EQ(made_up().madeUpPending(kLegacyStream), 0U);
  open_gate(kThreadStream);
  EXPECT_EQ(call<Result(Stream)>("cuStreamSynchronize_ptsz")(nullptr), kSuccess);
  EXPECT_EQ(call<Result(DevicePointer, const void*, std::size_t)>("cuMemcpyHtoD_v2_ptds")(
                device_, source.data(), 4096),
            kSuccess);
}

}  // namespace
}  // namespace pinion::made_up_cuda
