// The device `cuda` over the made-up driver, whose copies move through the pages that were registered: what
// other contexts, captures, resets and faults do to registrations, and domains whose regions serve copies.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "device/cuda/cuda.h"
#include "registry/blocking.h"
#include "registry/domain.h"
#include "support/made_up_cuda/made_up_cuda.h"
#include "support/program_device.h"

namespace pinion::cuda {
namespace {

using test::kPage;
using test::Memory;

const made_up_cuda::Library& made_up() {
  static const made_up_cuda::Library opened = made_up_cuda::open(PINION_TEST_CUDA);
  return opened;
}
template <class Function>
Function* call(const char* symbol) {
  return reinterpret_cast<Function*>(::dlsym(made_up().library, symbol));
}
const Driver& driver() {
  static const Driver found = [] {
    Driver made;
    EXPECT_EQ(fill(made, [](const char* symbol) { return ::dlsym(made_up().library, symbol); }), nullptr);
    return made;
  }();
  return found;
}

/// A program that uses the primary context, and the device beside it.
class CudaDriver : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(call<Result(unsigned)>("cuInit")(0), kSuccess);
    made_up().madeUpSetLongestWait(20'000);
    made_up().madeUpSetFreeMemory(std::size_t{60} << 30);
    use_context();
    context_ = std::make_unique<OwnContext>(driver(), 0);
    ASSERT_TRUE(context_->look());
    device_ = make_cuda_device(driver(), ranges_, *context_);
  }
  void TearDown() override {
    if (device_->broken()) return;
    EXPECT_EQ(made_up().madeUpRegistrations(), 0u);
    Context current = nullptr;
    driver().context_current(&current);
    EXPECT_EQ(current, program_) << "the thread's own context is current again";
  }

  void use_context() {
    ASSERT_EQ(call<Result(Context*, Ordinal)>("cuDevicePrimaryCtxRetain")(&program_, 0), kSuccess);
    set_context();
  }
  void set_context() const { ASSERT_EQ(call<Result(Context)>("cuCtxSetCurrent")(program_), kSuccess); }
  static Stream make_stream() {
    Stream stream = nullptr;
    EXPECT_EQ(call<Result(Stream*, unsigned)>("cuStreamCreate")(&stream, kStreamNonBlocking), kSuccess);
    return stream;
  }
  static DevicePointer allocate(std::size_t bytes) {
    DevicePointer device = 0;
    EXPECT_EQ(call<Result(DevicePointer*, std::size_t)>("cuMemAlloc_v2")(&device, bytes), kSuccess);
    return device;
  }
  static Result finish(Stream stream) { return call<Result(Stream)>("cuStreamSynchronize")(stream); }

  Registration add(Range range) { return device_->register_range(range, Access::read, Actor::helper); }
  int drop(const Registration& registration) {
    return device_->deregister(registration.key, Actor::helper).code;
  }
  static bool is_registered(Range range) {
    const void* begin = nullptr;
    std::size_t bytes = 0;
    return made_up().madeUpRegistration(reinterpret_cast<void*>(range.begin), &begin, &bytes) != 0 &&
           Range::of(begin, bytes) == range;
  }

  Context program_ = nullptr;
  HostRanges ranges_;
  std::unique_ptr<OwnContext> context_;
  std::unique_ptr<CudaDevice> device_;
};

TEST_F(CudaDriver, WaitsForNothingThatTheProgramHoldsBack) {
  const Memory memory(4);
  const Stream gated = make_stream();
  ASSERT_EQ(made_up().madeUpCloseGate(gated), 0);
  const Range range = Range::of(memory.page(0) + 10, 2 * kPage);
  const Registration made = add(range);
  ASSERT_FALSE(made.error) << made.error.message;
  EXPECT_TRUE(is_registered(range));
  EXPECT_EQ(drop(made), 0);
  EXPECT_FALSE(is_registered(range));
  EXPECT_GT(made_up().madeUpPending(gated), 0u) << "the gate is closed still";
  ASSERT_EQ(made_up().madeUpOpenGate(gated), 0);
  EXPECT_EQ(finish(gated), kSuccess);
}

TEST_F(CudaDriver, LeavesCapturesOfAllThreadsValid) {
  const Memory memory(4);
  const Stream stream = make_stream();
  for (const int mode : {kCaptureGlobal, kCaptureThreadLocal, kCaptureRelaxed}) {
    ASSERT_EQ(call<Result(Stream, int)>("cuStreamBeginCapture_v2")(stream, mode), kSuccess);
    const auto register_once = [&] {
      const Registration made = add(Range::of(memory.page(0) + 1, kPage));
      EXPECT_FALSE(made.error) << made.error.message;
      EXPECT_EQ(drop(made), 0);
    };
    register_once();
    std::thread(register_once).join();
    void* graph = nullptr;
    EXPECT_EQ(call<Result(Stream, void**)>("cuStreamEndCapture")(stream, &graph), kSuccess) << mode;
    EXPECT_NE(graph, nullptr);
  }
}

TEST_F(CudaDriver, RegistersFromThreadsWithoutAContext) {
  const Memory memory(4);
  std::thread([&] {
    const Registration made = add(Range::of(memory.page(0), kPage));
    EXPECT_FALSE(made.error) << made.error.message;
    Context current = nullptr;
    EXPECT_EQ(driver().context_current(&current), kSuccess);
    EXPECT_EQ(current, nullptr) << "and leaves them as they were";
    EXPECT_EQ(drop(made), 0);
  }).join();
}

TEST_F(CudaDriver, AResetOfTheProgramsContextLeavesItsRegistrations) {
  const Memory memory(4);
  const Range range = Range::of(memory.page(1) + 5, kPage);
  const Registration made = add(range);
  ASSERT_FALSE(made.error) << made.error.message;
  ASSERT_EQ(call<Result(Ordinal)>("cuDevicePrimaryCtxReset_v2")(0), kSuccess);
  use_context();
  EXPECT_TRUE(is_registered(range));
  const Registration another = add(Range::of(memory.page(3), 100));
  EXPECT_FALSE(another.error) << another.error.message;
  EXPECT_EQ(drop(made), 0);
  EXPECT_EQ(drop(another), 0);
  EXPECT_FALSE(device_->broken());
}

TEST_F(CudaDriver, MakesItsContextAfterTheProgramsFirstOneHasEnded) {
  const Memory memory(4);
  ASSERT_EQ(call<Result(Ordinal)>("cuDevicePrimaryCtxReset_v2")(0), kSuccess);
  const Registration made = add(Range::of(memory.page(0), kPage));
  EXPECT_FALSE(made.error) << made.error.message;
  EXPECT_EQ(drop(made), 0);
  use_context();
}

TEST_F(CudaDriver, ARegistrationThatTheProgramUndidIsGone) {
  const Memory memory(4);
  const Registration made = add(Range::of(memory.page(0) + 100, kPage));
  ASSERT_FALSE(made.error) << made.error.message;
  ASSERT_EQ(driver().host_unregister(memory.page(0) + 100), kSuccess);
  EXPECT_EQ(drop(made), 0);
  EXPECT_FALSE(ranges_.touches_registration(Range::of(memory.page(0), memory.bytes())));
}

TEST_F(CudaDriver, MemoryThatTheProgramRegisteredIsRefused) {
  const Memory memory(4);
  ASSERT_EQ(driver().host_register(memory.page(1), kPage, 0), kSuccess);
  EXPECT_EQ(add(Range::of(memory.page(0), 2 * kPage)).error.code, EBUSY);
  EXPECT_FALSE(ranges_.touches_registration(Range::of(memory.page(0), memory.bytes())));
  const Registration beside = add(Range::of(memory.page(0), kPage));
  EXPECT_FALSE(beside.error) << beside.error.message;
  EXPECT_EQ(drop(beside), 0);
  ASSERT_EQ(driver().host_unregister(memory.page(1)), kSuccess);
}

/// Random copies, overwritten sources, and memory mapped anew, over the registry: what the GPU gets is what
/// the program wrote.
TEST_F(CudaDriver, CopiesThroughRegionsGetTheProgramsBytes) {
  if (made_up().madeUpPins() == 0) GTEST_SKIP() << "this machine pins no pages";
  constexpr std::size_t kPages = 32;
  constexpr int kThreads = 3;
  Budget budget(Limits{24 * kPage, UINT64_MAX, "--limit"});
  Brackets brackets;
  RealClock clock;
  Domain domain(*device_, budget, brackets, clock, nullptr);
  std::atomic<int> registered{0};
  const auto work = [&](unsigned seed) {
    set_context();
    std::mt19937 random(seed);
    const Memory memory(kPages);
    const Stream stream = make_stream();
    const DevicePointer device = allocate(memory.bytes());
    const auto* const bytes_of_device = static_cast<const char*>(made_up().madeUpDeviceBytes(device));
    RecentRegions hints;
    for (int step = 0; step < 400; ++step) {
      if (random() % 8 == 0) {
        const std::size_t page = random() % kPages;
        const Range gone = Range::of(memory.page(page), kPage);
        brackets.open(gone);
        domain.doom(gone);
        ::mmap(memory.page(page), kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
               0);
        brackets.close(gone);
      }
      const std::size_t begin = random() % (memory.bytes() - 1);
      const std::size_t bytes = 1 + random() % std::min<std::size_t>(memory.bytes() - begin, 6 * kPage);
      char* const source = memory.page(0) + begin;
      std::memset(source, static_cast<int>(1 + random() % 250), bytes);
      const Range range = Range::of(source, bytes);
      Region* region = domain.try_hit(range, Access::read, hints);
      if (region == nullptr) {
        Acquisition miss(domain, {.pages = range});
        if (run_blocking(miss, Actor::application) == AcquireStep::leased) region = miss.result().region;
      }
      const Block used = range;
      if (region == nullptr && !ranges_.close({&used, 1})) continue;  // the front would stage it
      registered += region != nullptr;
      ASSERT_EQ(driver().copy_in_async(device, source, bytes, stream), kSuccess);
      if (region != nullptr) {
        ASSERT_EQ(finish(stream), kSuccess);
        domain.release(region);
      } else {
        ranges_.open({&used, 1});
        ASSERT_EQ(finish(stream), kSuccess);
      }
      ASSERT_EQ(std::memcmp(bytes_of_device, source, bytes), 0) << "seed " << seed << " step " << step;
    }
    retire_all(domain, Actor::application);
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= kThreads; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  retire_all(domain, Actor::helper);
  EXPECT_GT(registered, 100 * kThreads);
}

// The last one in this process: the driver stays broken.
TEST_F(CudaDriver, AFaultInTheProgramsContextIsTheEnd) {
  const Memory memory(4);
  const Range range = Range::of(memory.page(0), 2 * kPage);
  const Registration made = add(range);
  ASSERT_FALSE(made.error) << made.error.message;
  made_up().madeUpBreak(nullptr, kIllegalAddress);
  EXPECT_EQ(drop(made), 0);
  EXPECT_TRUE(device_->broken());
  EXPECT_TRUE(ranges_.touches_registration(range)) << "the driver may have it still";
  const unsigned long long calls = made_up().madeUpCalls("cuMemHostRegister_v2");
  EXPECT_EQ(add(range).error.code, ENODEV);
  EXPECT_EQ(made_up().madeUpCalls("cuMemHostRegister_v2"), calls);
}

}  // namespace
}  // namespace pinion::cuda
