// A program that uses the CUDA driver as any does: linked with the made-up one, under the preload
// (CMakeLists.txt sets LD_PRELOAD). Contents move through the pages that were pinned, so that a stale
// registration shows wrong bytes.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "device/cuda/driver_api.h"
#include "support/made_up_cuda/made_up_cuda.h"

namespace pinion::cuda {

extern "C" {
Result cuInit(unsigned);
Result cuDevicePrimaryCtxRetain(Context*, Ordinal);
Result cuDevicePrimaryCtxReset_v2(Ordinal);
Result cuCtxCreate_v2(Context*, unsigned, Ordinal);
Result cuCtxDestroy_v2(Context);
Result cuCtxSetCurrent(Context);
Result cuMemAlloc_v2(DevicePointer*, std::size_t);
Result cuMemcpyHtoD_v2(DevicePointer, const void*, std::size_t);
Result cuMemcpyDtoH_v2(void*, DevicePointer, std::size_t);
Result cuMemcpyHtoDAsync_v2(DevicePointer, const void*, std::size_t, Stream);
Result cuMemcpyDtoHAsync_v2(void*, DevicePointer, std::size_t, Stream);
Result cuMemcpy2D_v2(const struct Copy2D*);
Result cuMemcpy3DBatchAsync_v2(std::size_t, const struct BatchCopy*, unsigned long long, Stream);
Result cuMemcpyBatchAsync_v2(const DevicePointer*, const DevicePointer*, const std::size_t*, std::size_t,
                             const int*, const std::size_t*, std::size_t, Stream);
Result cuArray3DCreate_v2(void**, const ArrayShape*);
Result cuMemcpyAtoH_v2(void*, void*, std::size_t, std::size_t);
Result cuEventCreate(Event*, unsigned);
Result cuEventRecord(Event, Stream);
Result cuStreamWaitEvent(Stream, Event, unsigned);
Result cuGraphCreate(void**, unsigned);
Result cuGraphAddMemcpyNode(void**, void*, void* const*, std::size_t, const struct Copy3D*, Context);
Result cuMemHostRegister_v2(void*, std::size_t, unsigned);
Result cuMemHostUnregister(void*);
Result cuPointerGetAttribute(void*, int, DevicePointer);
Result cuStreamCreate(Stream*, unsigned);
Result cuStreamSynchronize(Stream);
Result cuStreamBeginCapture_v2(Stream, int);
Result cuStreamEndCapture(Stream, void**);
Result cuGraphInstantiateWithFlags(void**, void*, unsigned long long);
Result cuGraphLaunch(void*, Stream);
Result cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,
                      void**, void**);
}

}  // namespace pinion::cuda

namespace pinion::test {

using namespace cuda;  // NOLINT(google-build-using-namespace): of tests alone

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Pages of their own, which never move.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) { map(nullptr, 0); }
  ~Memory() { ::munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void fill(int value) { std::memset(data_, value, bytes_); }
  bool holds(int value) const { return holds(data_, bytes_, value); }
  /// Fresh memory takes the place of the old.
  void remap() {
    ::munmap(data_, bytes_);
    map(data_, MAP_FIXED);
  }
  static bool holds(const void* at, std::size_t bytes, int value) {
    const auto* const first = static_cast<const char*>(at);
    return first[0] == static_cast<char>(value) && std::memcmp(first, first + 1, bytes - 1) == 0;
  }

 private:
  void map(void* at, int flags) {
    void* const got = ::mmap(at, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    ASSERT_NE(got, MAP_FAILED);
    data_ = static_cast<char*>(got);
  }
  const std::size_t bytes_;
  char* data_ = nullptr;
};

class CudaProgram : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = 8 * kMiB;

  void SetUp() override {
    if (std::getenv("LD_PRELOAD") == nullptr) GTEST_SKIP() << "needs the preload";
    if (!madeUpPins()) GTEST_SKIP() << "needs io_uring to pin pages";
    ASSERT_EQ(cuInit(0), kSuccess);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), kSuccess);
    ASSERT_EQ(cuCtxSetCurrent(context_), kSuccess);
    madeUpSetFreeMemory(std::size_t{64} << 30);
    ASSERT_EQ(cuMemAlloc_v2(&device_, 2 * kBytes), kSuccess);
    ASSERT_EQ(cuStreamCreate(&stream_, 1), kSuccess);
  }

  /// Copies the memory until it is registered. False: it never is.
  bool register_by_use(Memory& memory) {
    for (int i = 0; i < 400; ++i) {
      memory.fill(i % 100);
      EXPECT_EQ(cuMemcpyHtoD_v2(device_, memory.data(), memory.bytes()), kSuccess);
      EXPECT_TRUE(Memory::holds(madeUpDeviceBytes(device_), memory.bytes(), i % 100));
      if (is_registered(memory.data())) return true;
      ::usleep(1000);
    }
    return false;
  }
  static bool is_registered(const void* at) {
    const void* begin = nullptr;
    std::size_t bytes = 0;
    return madeUpRegistration(at, &begin, &bytes) != 0;
  }
  bool device_holds(std::size_t bytes, int value) const {
    return Memory::holds(madeUpDeviceBytes(device_), bytes, value);
  }

  Context context_ = nullptr;
  DevicePointer device_ = 0;
  Stream stream_ = nullptr;
};

}  // namespace pinion::test
