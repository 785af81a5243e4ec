// The made-up CUDA driver follows docs/gpu-driver.md: a test for each rule.
#include "support/made_up_cuda/made_up_cuda.h"

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

namespace pinion::made_up_cuda {
namespace {

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

constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;

const Library& made_up() {
  static const Library opened = open(PINION_TEST_CUDA);
  return opened;
}

const Driver& cuda() {
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
    for (int i = 0; i < kLooks && !done; ++i) ::usleep(1000);
    const bool waited = !done;
    open_gate(gated);
    caller.join();
    return waited;
  }
  static constexpr std::size_t kDeviceBytes = 64 * kMiB;
  static constexpr int kLooks = 50;
  Context context_ = nullptr;
  Stream stream_ = nullptr;
  DevicePointer device_ = 0;
};

// ---- device memory ----

TEST_F(MadeUpCuda, DeviceMemoryCannotBeTouchedByItsAddress) {
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(device_) = 1, "");
}

TEST_F(MadeUpCuda, CopiesMoveContentsBothWays) {
  Pages source(kMiB, 7), target(kMiB);
  ASSERT_EQ(cuda().copy_in(device_, source.data(), kMiB), kSuccess);
  EXPECT_TRUE(device_holds(7, kMiB));
  ASSERT_EQ(cuda().copy_out(target.data(), device_, kMiB), kSuccess);
  EXPECT_TRUE(target.all(7));
}

TEST_F(MadeUpCuda, ACopyBeyondAnAllocationIsRefused) {
  Pages source(kMiB, 7);
  EXPECT_EQ(cuda().copy_in(device_ + kDeviceBytes - kKiB, source.data(), kMiB), 1);
}

TEST_F(MadeUpCuda, FreeMemoryCanBeSet) {
  std::size_t free = 0, total = 0;
  made_up().madeUpSetFreeMemory(3 * kMiB);
  ASSERT_EQ(cuda().memory_info(&free, &total), kSuccess);
  EXPECT_EQ(free, 3 * kMiB);
  DevicePointer more = 0;
  EXPECT_EQ(cuda().allocate(&more, 4 * kMiB), 2);
  made_up().madeUpSetFreeMemory(std::size_t{60} << 30);
}

// ---- when copies return, and what they have read ----

TEST_F(MadeUpCuda, ASmallPageableCopyReturnsAtOnceWithItsSourceRead) {
  Pages source(2 * kMiB, 1);
  close_gate(stream_);
  ASSERT_EQ(cuda().copy_in_async(device_, source.data(), 2 * kMiB, stream_), kSuccess);
  source.fill(2);
  open_gate(stream_);
  ASSERT_EQ(cuda().stream_synchronize(stream_), kSuccess);
  EXPECT_TRUE(device_holds(1, 2 * kMiB));
}

TEST_F(MadeUpCuda, ALargerPageableCopyWaitsForItsStream) {
  Pages source(2 * kMiB + 4096, 1);
  close_gate(stream_);
  EXPECT_TRUE(
      waits(stream_, [&] { return cuda().copy_in_async(device_, source.data(), 2 * kMiB + 1, stream_); }));
}

TEST_F(MadeUpCuda, StagingMemoryIsFinite) {
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

TEST_F(MadeUpCuda, CopiesFromTheDeviceWaitAtEverySize) {
  Pages target(4096);
  close_gate(stream_);
  EXPECT_TRUE(waits(stream_, [&] { return cuda().copy_out_async(target.data(), device_, 64, stream_); }));
}

TEST_F(MadeUpCuda, SyncCopiesWaitForTheLegacyStreamAndForBlockingOnes) {
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

TEST_F(MadeUpCuda, APinnedCopyReturnsAtOnceAndReadsInItsTurn) {
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

TEST_F(MadeUpCuda, AStaleRegistrationShowsTheOldBytes) {
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

TEST_F(MadeUpCuda, APinnedCopyBackGoesToTheOldPages) {
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

TEST_F(MadeUpCuda, RegistrationsAreExactRangesOfBytes) {
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

TEST_F(MadeUpCuda, TheFirstByteOfACopyDecides) {
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

TEST_F(MadeUpCuda, UnusableMemoryCannotBeRegistered) {
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

// ---- contexts, and what waits ----

TEST_F(MadeUpCuda, RegisterNeedsAContextAndUnregisterNone) {
  Pages memory(kMiB);
  ASSERT_EQ(cuda().host_register(memory.data(), kKiB, 0), kSuccess);
  std::thread([&] {
    EXPECT_EQ(cuda().host_register(memory.data() + kKiB, kKiB, 0), 201);
    EXPECT_EQ(cuda().host_unregister(memory.data()), kSuccess);
  }).join();
}

TEST_F(MadeUpCuda, UnregisterWaitsForTheWholeContext) {
  Pages memory(kMiB);
  ASSERT_EQ(cuda().host_register(memory.data(), kMiB, 0), kSuccess);
  close_gate(stream_);
  EXPECT_TRUE(waits(stream_, [&] { return cuda().host_unregister(memory.data()); }));
}

TEST_F(MadeUpCuda, RegisterWaitsForNothing) {
  Pages memory(kMiB);
  close_gate(stream_);
  EXPECT_EQ(cuda().host_register(memory.data(), kMiB, 0), kSuccess);
  open_gate(stream_);
}

TEST_F(MadeUpCuda, InASecondContextNothingWaitsAndAPendingCopyFails) {
  Pages memory(kMiB, 1);
  Context second = nullptr;
  ASSERT_EQ(cuda().context_create(&second, 0, 0), kSuccess);
  ASSERT_EQ(cuda().host_register(memory.data(), kMiB, 0), kSuccess);
  cuda().context_set(context_);
  close_gate(stream_);
  ASSERT_EQ(cuda().copy_in_async(device_, memory.data(), kMiB, stream_), kSuccess);
  ASSERT_EQ(cuda().host_unregister(memory.data()), kSuccess);
  open_gate(stream_);
  EXPECT_EQ(cuda().stream_synchronize(stream_), 719);
  EXPECT_EQ(cuda().copy_in(device_, memory.data(), 64), 719);
  EXPECT_EQ(cuda().host_register(memory.data(), kMiB, 0), 719);
  cuda().context_set(second);
  EXPECT_EQ(cuda().host_register(memory.data(), kMiB, 0), kSuccess);
  call<Result(Context)>("cuCtxDestroy_v2")(second);
  cuda().context_set(context_);
}

TEST_F(MadeUpCuda, AFaultBreaksAllContexts) {
  Pages memory(kMiB);
  Context second = nullptr;
  ASSERT_EQ(cuda().context_create(&second, 0, 0), kSuccess);
  made_up().madeUpBreak(context_, 700);
  EXPECT_EQ(cuda().host_register(memory.data(), kMiB, 0), 700);
  call<Result(Context)>("cuCtxDestroy_v2")(second);
}

TEST_F(MadeUpCuda, TheEndOfAContextEndsItsRegistrations) {
  Pages memory(kMiB);
  Context second = nullptr;
  unsigned long long first_id = 0, id = 0, next_id = 0;
  ASSERT_EQ(cuda().context_id(context_, &first_id), kSuccess);
  ASSERT_EQ(cuda().context_create(&second, 0, 0), kSuccess);
  ASSERT_EQ(cuda().context_id(second, &id), kSuccess);
  ASSERT_EQ(cuda().host_register(memory.data(), kMiB, kPortable), kSuccess);
  ASSERT_EQ(call<Result(Context)>("cuCtxDestroy_v2")(second), kSuccess);
  Context third = nullptr;
  ASSERT_EQ(cuda().context_create(&third, 0, 0), kSuccess);
  ASSERT_EQ(cuda().context_id(third, &next_id), kSuccess);
  EXPECT_EQ(third, second) << "handles recur";
  EXPECT_NE(next_id, id);
  EXPECT_NE(first_id, id);
  EXPECT_EQ(cuda().host_unregister(memory.data()), 713);
  EXPECT_EQ(cuda().host_register(memory.data(), kMiB, kPortable), kSuccess);
  ASSERT_EQ(call<Result(Context)>("cuCtxDestroy_v2")(third), kSuccess);
}

TEST_F(MadeUpCuda, AResetEndsThePrimaryContextOnly) {
  Pages memory(2 * kMiB);
  ASSERT_EQ(cuda().host_register(memory.data(), kMiB, 0), kSuccess);
  Context primary = nullptr;
  ASSERT_EQ(cuda().primary_retain(&primary, 0), kSuccess);
  ASSERT_EQ(cuda().context_set(primary), kSuccess);
  ASSERT_EQ(cuda().host_register(memory.data() + kMiB, kMiB, 0), kSuccess);
  ASSERT_EQ(cuda().primary_reset(0), kSuccess);
  EXPECT_EQ(cuda().host_unregister(memory.data() + kMiB), 713);
  EXPECT_EQ(cuda().host_unregister(memory.data()), kSuccess);
  EXPECT_EQ(cuda().context_synchronize(), 709);
  cuda().context_set(context_);
}

// ---- streams and events ----

TEST_F(MadeUpCuda, LegacyAndBlockingStreamsWaitForEachOther) {
  Pages source(4096, 1);
  Stream blocking = nullptr;
  ASSERT_EQ(cuda().stream_create(&blocking, 0), kSuccess);
  close_gate(kLegacyStream);
  ASSERT_EQ(cuda().copy_in_async(device_, source.data(), 4096, blocking), kSuccess);
  EXPECT_EQ(cuda().stream_query(blocking), kNotReady);
  ASSERT_EQ(cuda().copy_in_async(device_, source.data(), 4096, stream_), kSuccess);
  EXPECT_EQ(cuda().stream_synchronize(stream_), kSuccess);
  EXPECT_EQ(cuda().stream_query(blocking), kNotReady);
  open_gate(kLegacyStream);
  EXPECT_EQ(cuda().stream_synchronize(blocking), kSuccess);
}

TEST_F(MadeUpCuda, EachThreadHasAStreamOfItsOwn) {
  close_gate(kThreadStream);
  Event event = nullptr;
  ASSERT_EQ(cuda().event_create(&event, 0), kSuccess);
  std::thread([&] {
    cuda().context_set(context_);
    EXPECT_EQ(cuda().event_record(event, kThreadStream), kSuccess);
    EXPECT_EQ(cuda().event_synchronize(event), kSuccess);
  }).join();
  EXPECT_EQ(cuda().stream_query(kThreadStream), kNotReady);
  EXPECT_EQ(cuda().stream_query(kLegacyStream), kNotReady);
  open_gate(kThreadStream);
  EXPECT_EQ(cuda().stream_synchronize(kThreadStream), kSuccess);
}

TEST_F(MadeUpCuda, AnEventTellsOfTheWorkBeforeIt) {
  Event event = nullptr;
  ASSERT_EQ(cuda().event_create(&event, gpu::kEventBlocking | gpu::kEventNoTiming), kSuccess);
  EXPECT_EQ(cuda().event_query(event), kSuccess);
  close_gate(stream_);
  ASSERT_EQ(cuda().event_record(event, stream_), kSuccess);
  EXPECT_EQ(cuda().event_query(event), kNotReady);
  EXPECT_TRUE(waits(stream_, [&] { return cuda().event_synchronize(event); }));
  EXPECT_EQ(cuda().event_query(event), kSuccess);
}

TEST_F(MadeUpCuda, AStreamWaitsForAnEventOfAnother) {
  Event event = nullptr;
  Stream other = nullptr;
  ASSERT_EQ(cuda().event_create(&event, 0), kSuccess);
  ASSERT_EQ(cuda().stream_create(&other, gpu::kNonBlocking), kSuccess);
  close_gate(stream_);
  ASSERT_EQ(cuda().event_record(event, stream_), kSuccess);
  ASSERT_EQ(call<Result(Stream, Event, unsigned)>("cuStreamWaitEvent")(other, event, 0), kSuccess);
  EXPECT_TRUE(waits(stream_, [&] { return cuda().stream_synchronize(other); }));
}

TEST_F(MadeUpCuda, AKernelRunsAHostFunctionInItsTurn) {
  const auto add = reinterpret_cast<gpu::Function>(made_up().madeUpKernel(
      [](const unsigned long long* values) {
        *reinterpret_cast<std::atomic<unsigned long long>*>(values[0]) += values[1];
      },
      2));
  std::atomic<unsigned long long> sum{0};
  unsigned long long where = reinterpret_cast<unsigned long long>(&sum), what = 5;
  void* parameters[] = {&where, &what};
  close_gate(stream_);
  ASSERT_EQ(cuda().launch(add, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr), kSuccess);
  what = 100;
  EXPECT_EQ(sum, 0U);
  open_gate(stream_);
  ASSERT_EQ(cuda().stream_synchronize(stream_), kSuccess);
  EXPECT_EQ(sum, 5U);
}

TEST_F(MadeUpCuda, CallsInsideACallbackAreNotPermitted) {
  struct Seen {
    Pages memory{kMiB};
    Result registered = 0, unregistered = 0;
  } seen;
  ASSERT_EQ(cuda().launch_host(
                stream_,
                [](void* data) {
                  auto& s = *static_cast<Seen*>(data);
                  s.registered = cuda().host_register(s.memory.data(), kMiB, 0);
                  s.unregistered = cuda().host_unregister(s.memory.data());
                },
                &seen),
            kSuccess);
  ASSERT_EQ(cuda().stream_synchronize(stream_), kSuccess);
  EXPECT_EQ(seen.registered, 800);
  EXPECT_EQ(seen.unregistered, 800);
}

// ---- what a program sees of memory ----

TEST_F(MadeUpCuda, OnlyRegisteredAndDeviceMemoryHasAttributes) {
  Pages memory(kMiB);
  unsigned type = 0, flags = 0;
  const auto pointer = reinterpret_cast<DevicePointer>(memory.data());
  EXPECT_EQ(cuda().pointer_attribute(&type, 2, pointer), 1);
  EXPECT_EQ(cuda().host_flags(&flags, memory.data()), 1);
  ASSERT_EQ(cuda().host_register(memory.data(), kMiB, kPortable), kSuccess);
  EXPECT_EQ(cuda().pointer_attribute(&type, 2, pointer + 5), kSuccess);
  EXPECT_EQ(type, 1U);
  EXPECT_EQ(cuda().host_flags(&flags, memory.data()), kSuccess);
  EXPECT_EQ(flags, kPortable);
  DevicePointer base = 0;
  std::size_t bytes = 0;
  EXPECT_EQ(cuda().address_range(&base, &bytes, pointer + 5), kSuccess);
  EXPECT_EQ(base, pointer);
  EXPECT_EQ(bytes, kMiB);
  ASSERT_EQ(cuda().host_unregister(memory.data()), kSuccess);
  EXPECT_EQ(cuda().pointer_attribute(&type, 2, device_ + 5), kSuccess);
  EXPECT_EQ(type, 2U);
  EXPECT_EQ(cuda().pointer_attribute(&base, 11, device_ + 5), kSuccess);
  EXPECT_EQ(base, device_);
}

// ---- names ----

TEST_F(MadeUpCuda, NamesAreFoundByVersionAndKindOfStream) {
  const auto find = [](const char* name, int version, std::uint64_t flags) -> void* {
    void* found = nullptr;
    int status = -1;
    cuda().get_proc_address(name, &found, version, flags, &status);
    return found;
  };
  const auto symbol = [](const char* name) { return ::dlsym(made_up().library, name); };
  EXPECT_EQ(find("cuMemcpyHtoDAsync", 3020, 0), symbol("cuMemcpyHtoDAsync_v2"));
  EXPECT_EQ(find("cuMemcpyHtoDAsync", 7000, 2), symbol("cuMemcpyHtoDAsync_v2_ptsz"));
  EXPECT_EQ(find("cuMemcpyHtoD", 13000, 2), symbol("cuMemcpyHtoD_v2_ptds"));
  EXPECT_EQ(find("cuMemHostRegister", 6050, 2), symbol("cuMemHostRegister_v2"));
  EXPECT_EQ(find("cuMemHostRegister", 4000, 0), nullptr);
  EXPECT_EQ(find("cuMemcpyBatchAsync", 12080, 0), symbol("cuMemcpyBatchAsync"));
  EXPECT_EQ(find("cuMemcpyBatchAsync", 13000, 0), symbol("cuMemcpyBatchAsync_v2"));
  EXPECT_EQ(find("cuGetProcAddress", 12000, 0), symbol("cuGetProcAddress_v2"));
  EXPECT_EQ(find("cuMemcpyOfTomorrow", 13000, 0), nullptr);
}

// ---- what tests order ----

TEST_F(MadeUpCuda, TheNthCallOfANameFails) {
  Pages memory(kMiB);
  const auto before = made_up().madeUpCalls("cuMemHostRegister_v2");
  made_up().madeUpFailCall("cuMemHostRegister_v2", 2, 2);
  EXPECT_EQ(cuda().host_register(memory.data(), 64, 0), kSuccess);
  EXPECT_EQ(cuda().host_register(memory.data() + 64, 64, 0), 2);
  EXPECT_EQ(cuda().host_register(memory.data() + 64, 64, 0), kSuccess);
  EXPECT_EQ(made_up().madeUpCalls("cuMemHostRegister_v2"), before + 3);
  EXPECT_EQ(made_up().madeUpRegisteredBytes(), 128U);
}

TEST_F(MadeUpCuda, AHangEndsTheProcessWithALine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        made_up().madeUpSetLongestWait(50);
        made_up().madeUpCloseGate(stream_);
        cuda().stream_synchronize(stream_);
      },
      "cuStreamSynchronize waits for more than 50 ms");
}

}  // namespace
}  // namespace pinion::made_up_cuda
