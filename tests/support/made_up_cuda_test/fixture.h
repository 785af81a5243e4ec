// What tests of the made-up CUDA driver share: its functions, memory of the program, gated streams.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/driver.h"
#include "support/made_up_cuda/made_up_cuda.h"

namespace pinion::made_up_cuda {

using gpu::Context;
using gpu::Copy2D;
using gpu::Copy3D;
using gpu::CopyAttributes;
using gpu::DevicePointer;
using gpu::Driver;
using gpu::Event;
using gpu::Graph;
using gpu::GraphExec;
using gpu::GraphNode;
using gpu::kLegacyStream;
using gpu::kNotReady;
using gpu::kPortable;
using gpu::kSuccess;
using gpu::kThreadStream;
using gpu::Result;
using gpu::Stream;

inline constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;

inline const Library& made_up() {
  static const Library opened = open(PINION_TEST_CUDA);
  return opened;
}

inline const Driver& cuda() {
  static const Driver found = [] {
    using namespace gpu;  // NOLINT(google-build-using-namespace): the list's types
    Driver driver;
    driver.library = made_up().library;
#define LOOK_UP(member, symbol, parameters) \
  driver.member = reinterpret_cast<Result(*) parameters>(::dlsym(driver.library, symbol));
    PINION_GPU_DRIVER_CALLS(LOOK_UP)
    PINION_GPU_OPTIONAL_CALLS(LOOK_UP)
#undef LOOK_UP
    return driver;
  }();
  return found;
}

template <class Function>
Function* call(const char* symbol) {
  return reinterpret_cast<Function*>(::dlsym(made_up().library, symbol));
}

/// Memory of the program, on pages of its own.
class Pages {
 public:
  explicit Pages(std::size_t bytes, char value = 0) : bytes_(bytes) {
    data_ = map(nullptr, 0);
    fill(value);
  }
  ~Pages() { ::munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  char* data() { return data_; }
  std::size_t bytes() const { return bytes_; }
  void fill(char value) { std::memset(data_, value, bytes_); }
  /// Maps other memory in their place.
  void map_anew(char value) {
    map(data_, MAP_FIXED);
    fill(value);
  }
  bool all(char value) const {
    for (std::size_t i = 0; i < bytes_; ++i) {
      if (data_[i] != value) return false;
    }
    return true;
  }

 private:
  char* map(void* where, int flags) {
    void* const made =
        ::mmap(where, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (made == MAP_FAILED) std::abort();
    return static_cast<char*>(made);
  }
  std::size_t bytes_;
  char* data_;
};

class MadeUpCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuda().init(0), kSuccess);
    made_up().madeUpSetLongestWait(20000);
    ASSERT_EQ(cuda().context_create(&context_, 0, 0), kSuccess);
    ASSERT_EQ(cuda().stream_create(&stream_, gpu::kNonBlocking), kSuccess);
    ASSERT_EQ(cuda().allocate(&device_, kDeviceBytes), kSuccess);
  }
  void TearDown() override {
    made_up().madeUpAtCall(nullptr);
    if (context_) call<Result(Context)>("cuCtxDestroy_v2")(context_);
  }

  /// Whether all of the device's first bytes have the value.
  bool device_holds(char value, std::size_t bytes) const {
    const auto* const data = static_cast<const char*>(made_up().madeUpDeviceBytes(device_));
    for (std::size_t i = 0; i < bytes; ++i) {
      if (data[i] != value) return false;
    }
    return true;
  }
  void close_gate(Stream stream) { ASSERT_EQ(made_up().madeUpCloseGate(stream), kSuccess); }
  void open_gate(Stream stream) { ASSERT_EQ(made_up().madeUpOpenGate(stream), kSuccess); }

  /// Makes a call in another thread and says whether it waits for the gate of `gated`, which then opens.
  bool waits(Stream gated, const std::function<Result()>& body, Result* result = nullptr) {
    std::atomic<bool> done{false};
    std::thread caller([&] {
      cuda().context_set(context_);
      const Result returned = body();
      if (result) *result = returned;
      done = true;
    });
    // A call that waits for the gate goes on waiting; one that waits for work alone ends.
    for (int looks = 0; looks < kLooks && !done; ::usleep(1000)) {
      looks = made_up().madeUpWaiting() > 0 ? looks + 1 : 0;
    }
    const bool waited = !done;
    open_gate(gated);
    caller.join();
    return waited;
  }
  /// Every second row of 1 KiB of host memory, to the device.
  Copy2D& rows(char* from, std::size_t count) {
    shape_ = {};
    shape_.source_type = gpu::kMemoryTypeHost;
    shape_.source_host = from;
    shape_.source_pitch = 2 * kKiB;
    shape_.target_type = gpu::kMemoryTypeDevice;
    shape_.target_device = device_;
    shape_.target_pitch = shape_.width = kKiB;
    shape_.height = count;
    return shape_;
  }
  Result batch(char* from, std::size_t bytes, int order, Stream stream) {
    DevicePointer to = device_, source = reinterpret_cast<DevicePointer>(from);
    std::size_t first = 0;
    CopyAttributes attributes;
    attributes.source_access_order = order;
    return cuda().copy_batch_v2(&to, &source, &bytes, 1, &attributes, &first, 1, stream);
  }

  static constexpr std::size_t kDeviceBytes = 64 * kMiB;
  static constexpr int kLooks = 20;
  Context context_ = nullptr;
  Stream stream_ = nullptr;
  DevicePointer device_ = 0;
  Copy2D shape_;
};

}  // namespace pinion::made_up_cuda
