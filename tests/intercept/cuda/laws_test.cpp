// The laws of the front for CUDA, from outside (program.h).
#include <gtest/gtest.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "intercept/cuda/program.h"
#include "intercept/cuda/shapes.h"
#include "node/stop_request.h"
#include "support/eventually.h"

namespace pinion::test {
namespace {

class CudaLaws : public CudaProgram {};

TEST_F(CudaLaws, ABufferThatIsCopiedAgainAndAgainIsRegistered) {
  Memory memory(kBytes);
  ASSERT_TRUE(register_by_use(memory));
  const void* begin = nullptr;
  std::size_t bytes = 0;
  ASSERT_TRUE(madeUpRegistration(memory.data() + 100, &begin, &bytes));
  EXPECT_EQ(begin, memory.data());
  EXPECT_EQ(bytes, kBytes);
}

TEST_F(CudaLaws, FreshMemoryAtARegisteredAddressIsCopiedAsItIs) {
  Memory memory(kBytes);
  ASSERT_TRUE(register_by_use(memory));
  for (int value = 1; value < 20; ++value) {
    memory.remap();
    memory.fill(value);
    ASSERT_EQ(cuMemcpyHtoD_v2(device_, memory.data(), kBytes), kSuccess);
    ASSERT_TRUE(device_holds(kBytes, value)) << value;
    memory.fill(0);
    ASSERT_EQ(cuMemcpyDtoHAsync_v2(memory.data(), device_, kBytes, stream_), kSuccess);
    ASSERT_TRUE(memory.holds(value)) << value;
  }
}

TEST_F(CudaLaws, ACopyBeyondARegistrationWorksAsWithoutIt) {
  Memory memory(2 * kBytes);
  Memory other(kBytes);
  ASSERT_TRUE(register_by_use(other));
  memory.fill(3);
  for (int i = 0; i < 60; ++i) ASSERT_EQ(cuMemcpyHtoD_v2(device_, memory.data() + kMiB, kBytes), kSuccess);
  EXPECT_TRUE(is_registered(memory.data() + kMiB));
  // From within it beyond its end, from before it into it, over all of it; and small ones.
  const std::size_t places[][2] = {
      {2 * kMiB, kBytes}, {0, kBytes}, {0, 2 * kBytes}, {kBytes + kMiB - 8, 16}, {kMiB - 8, 16}};
  int value = 10;
  for (const auto& [at, bytes] : places) {
    memory.fill(++value);
    EXPECT_EQ(cuMemcpyHtoD_v2(device_, memory.data() + at, bytes), kSuccess) << at;
    EXPECT_TRUE(device_holds(bytes, value)) << at;
    std::memset(memory.data() + at, 0, bytes);
    EXPECT_EQ(cuMemcpyDtoHAsync_v2(memory.data() + at, device_, bytes, stream_), kSuccess) << at;
    EXPECT_TRUE(Memory::holds(memory.data() + at, bytes, value)) << at;
  }
}

TEST_F(CudaLaws, AnAsynchronousCopyReturnsFromAGatedStreamWithItsBytesRead) {
  Memory memory(kBytes);
  ASSERT_TRUE(register_by_use(memory));
  for (const std::size_t bytes : {std::size_t{4096}, 64 * std::size_t{1024}, kMiB, 2 * kMiB}) {
    memory.fill(7);
    ASSERT_EQ(madeUpCloseGate(stream_), 0);
    ASSERT_EQ(cuMemcpyHtoDAsync_v2(device_, memory.data(), bytes, stream_), kSuccess);
    memory.fill(9);  // the program may overwrite it now
    ASSERT_EQ(madeUpOpenGate(stream_), 0);
    ASSERT_EQ(cuStreamSynchronize(stream_), kSuccess);
    EXPECT_TRUE(device_holds(bytes, 7)) << bytes;
  }
}

TEST_F(CudaLaws, ALargeAsynchronousCopyHasReadItsBytesWhenItReturns) {
  Memory memory(kBytes);
  ASSERT_TRUE(register_by_use(memory));
  for (int value = 1; value < 10; ++value) {
    memory.fill(value);
    ASSERT_EQ(cuMemcpyHtoDAsync_v2(device_, memory.data(), kBytes, stream_), kSuccess);
    memory.fill(100);
    ASSERT_EQ(cuStreamSynchronize(stream_), kSuccess);
    ASSERT_TRUE(device_holds(kBytes, value));
  }
}

TEST_F(CudaLaws, ADriverThatReadsLessAtOnceIsWaitedForAsWithoutUs) {
  madeUpSetAsyncLimit(std::size_t{64} << 10);
  Memory memory(kMiB);
  ASSERT_TRUE(register_by_use(memory));
  memory.fill(41);
  ASSERT_EQ(madeUpCloseGate(stream_), 0);
  std::thread waiting([&] {
    EXPECT_EQ(cuCtxSetCurrent(context_), kSuccess);
    EXPECT_EQ(cuMemcpyHtoDAsync_v2(device_, memory.data(), kMiB, stream_), kSuccess);
    memory.fill(42);
  });
  EXPECT_TRUE(eventually([] { return madeUpWaiting() == 1; }));
  ASSERT_EQ(madeUpOpenGate(stream_), 0);
  waiting.join();
  ASSERT_EQ(cuStreamSynchronize(stream_), kSuccess);
  EXPECT_TRUE(device_holds(kMiB, 41));
}

TEST_F(CudaLaws, RegisteredMemoryLooksAsWithoutUs) {
  Memory memory(kBytes);
  ASSERT_TRUE(register_by_use(memory));
  unsigned type = 99;
  const auto address = reinterpret_cast<DevicePointer>(memory.data());
  EXPECT_EQ(cuPointerGetAttribute(&type, kAttributeMemoryType, address), kInvalidValue);
  EXPECT_EQ(cuMemHostUnregister(memory.data()), kNotRegistered);
  EXPECT_TRUE(is_registered(memory.data()));
  EXPECT_EQ(cuMemHostRegister_v2(memory.data(), kBytes, 1), kSuccess);
  EXPECT_EQ(cuPointerGetAttribute(&type, kAttributeMemoryType, address), kSuccess);
  EXPECT_EQ(type, kMemoryTypeHost);
  memory.fill(5);
  EXPECT_EQ(cuMemcpyHtoD_v2(device_, memory.data(), kBytes), kSuccess);
  EXPECT_TRUE(device_holds(kBytes, 5));
  EXPECT_EQ(cuMemHostUnregister(memory.data()), kSuccess);
  EXPECT_EQ(cuMemHostUnregister(memory.data()), kNotRegistered);
}

TEST_F(CudaLaws, ACapturedCopyReadsPlainMemoryAtEachLaunch) {
  Memory memory(kBytes);
  ASSERT_TRUE(register_by_use(memory));
  ASSERT_EQ(cuStreamBeginCapture_v2(stream_, kCaptureGlobal), kSuccess);
  EXPECT_EQ(cuMemcpyHtoDAsync_v2(device_, memory.data(), kMiB, stream_), kSuccess);
  void* graph = nullptr;
  ASSERT_EQ(cuStreamEndCapture(stream_, &graph), kSuccess);
  EXPECT_FALSE(is_registered(memory.data()));
  void* launched = nullptr;
  ASSERT_EQ(cuGraphInstantiateWithFlags(&launched, graph, 0), kSuccess);
  for (int value = 1; value < 50; ++value) {
    memory.fill(value);
    ASSERT_EQ(cuMemcpyHtoD_v2(device_ + kBytes, memory.data(), kBytes), kSuccess);
    ASSERT_EQ(cuGraphLaunch(launched, stream_), kSuccess);
    ASSERT_EQ(cuStreamSynchronize(stream_), kSuccess);
    ASSERT_TRUE(device_holds(kMiB, value));
  }
  EXPECT_FALSE(is_registered(memory.data())) << "a graph may read it at any time";
}

TEST_F(CudaLaws, FreshMemoryInPlaceOfAGraphsIsRegistered) {
  Memory memory(kBytes);
  ASSERT_TRUE(register_by_use(memory));
  ASSERT_EQ(cuStreamBeginCapture_v2(stream_, kCaptureGlobal), kSuccess);
  EXPECT_EQ(cuMemcpyHtoDAsync_v2(device_, memory.data(), kBytes, stream_), kSuccess);
  void* graph = nullptr;
  ASSERT_EQ(cuStreamEndCapture(stream_, &graph), kSuccess);
  ASSERT_FALSE(is_registered(memory.data()));
  memory.remap();
  EXPECT_TRUE(register_by_use(memory));
}

TEST_F(CudaLaws, AChildOfAForkSeesTheMemoryAndTheParentGoesOn) {
  Memory memory(kBytes);
  ASSERT_TRUE(register_by_use(memory));
  memory.fill(11);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  // Its copy of the driver shows what was registered at the fork.
  if (child == 0) ::_exit(memory.holds(11) && !is_registered(memory.data()) ? 0 : 1);
  memory.fill(12);  // breaks the sharing of pages with the child
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(cuMemcpyHtoD_v2(device_, memory.data(), kBytes), kSuccess);
  EXPECT_TRUE(device_holds(kBytes, 12));
}

TEST_F(CudaLaws, AChildOfAForkEndsByExit) {
  Memory memory(kBytes);
  ASSERT_TRUE(register_by_use(memory));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) std::exit(3);
  int status = -1;
  for (int i = 0; i < 3000 && ::waitpid(child, &status, WNOHANG) == 0; ++i) ::usleep(10'000);
  EXPECT_TRUE(WIFEXITED(status)) << "it waits for a thread of its parent";
  EXPECT_EQ(WEXITSTATUS(status), 3);
  ::kill(child, SIGKILL);
}

TEST_F(CudaLaws, CopiesGoOnAfterTheContextWasReset) {
  Memory memory(kBytes);
  ASSERT_TRUE(register_by_use(memory));
  ASSERT_EQ(cuDevicePrimaryCtxReset_v2(0), kSuccess);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), kSuccess);
  ASSERT_EQ(cuCtxSetCurrent(context_), kSuccess);
  ASSERT_EQ(cuMemAlloc_v2(&device_, kBytes), kSuccess);
  for (int value = 1; value < 10; ++value) {
    memory.fill(value);
    ASSERT_EQ(cuMemcpyHtoD_v2(device_, memory.data(), kBytes), kSuccess);
    ASSERT_TRUE(device_holds(kBytes, value));
  }
}

TEST_F(CudaLaws, BuffersAreRegisteredAfterTheFirstContextWasDestroyed) {
  Context first = nullptr;
  DevicePointer device = 0;
  ASSERT_EQ(cuCtxCreate_v2(&first, 0, 0), kSuccess);
  ASSERT_EQ(cuMemAlloc_v2(&device, kBytes), kSuccess);
  Memory memory(kBytes);
  ASSERT_EQ(cuMemcpyHtoD_v2(device, memory.data(), kBytes), kSuccess);
  ASSERT_EQ(cuCtxDestroy_v2(first), kSuccess);
  ASSERT_EQ(cuCtxSetCurrent(context_), kSuccess);
  EXPECT_TRUE(register_by_use(memory));
}

TEST_F(CudaLaws, MemoryThatTheProgramPinnedIsRegisteredAfterTheEndOfItsContext) {
  Memory first(kBytes), second(kBytes);
  Context other = nullptr;
  ASSERT_EQ(cuMemHostRegister_v2(first.data(), kBytes, 1), kSuccess);
  ASSERT_EQ(cuDevicePrimaryCtxReset_v2(0), kSuccess);
  ASSERT_EQ(cuCtxCreate_v2(&other, 0, 0), kSuccess);
  ASSERT_EQ(cuMemHostRegister_v2(second.data(), kBytes, 1), kSuccess);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), kSuccess);
  ASSERT_EQ(cuCtxSetCurrent(context_), kSuccess);
  ASSERT_EQ(cuMemAlloc_v2(&device_, kBytes), kSuccess);
  EXPECT_TRUE(register_by_use(first));
  ASSERT_EQ(cuCtxDestroy_v2(other), kSuccess);
  EXPECT_TRUE(register_by_use(second));
}

TEST_F(CudaLaws, CopiesGoOnWhereNothingCanBeRegistered) {
  for (unsigned long long n = 1; n <= 200; ++n) madeUpFailCall("cuMemHostRegister_v2", n, kOutOfMemory);
  Memory memory(kBytes);
  for (int value = 1; value < 60; ++value) {
    memory.fill(value);
    ASSERT_EQ(cuMemcpyHtoD_v2(device_, memory.data(), kBytes), kSuccess);
    ASSERT_TRUE(device_holds(kBytes, value));
    std::memset(memory.data(), 0, kBytes);
    ASSERT_EQ(cuMemcpyDtoH_v2(memory.data(), device_, kBytes), kSuccess);
    ASSERT_TRUE(memory.holds(value));
  }
}

/// A copy of registered memory waits for a stream that the program opens only after other calls on that
/// memory. They wait for a copy's lease, so the waiting copy must hold none.
class CudaLawsBesideAWaitingCopy : public CudaLaws {
 protected:
  /// `call` uses the first half of the memory, the copy that waits the second.
  template <class Call>
  void check(Call&& call) {
    ASSERT_TRUE(register_by_use(memory_));
    memory_.fill(21);
    ASSERT_EQ(madeUpCloseGate(stream_), 0);
    std::thread waiting([&] {
      EXPECT_EQ(cuCtxSetCurrent(context_), kSuccess);
      EXPECT_EQ(cuMemcpyDtoHAsync_v2(memory_.data() + kBytes / 2, device_, kBytes / 2, stream_), kSuccess);
    });
    EXPECT_TRUE(eventually([] { return madeUpWaiting() == 1; }));
    EXPECT_GT(madeUpPending(stream_), 0u);
    call();
    EXPECT_GT(madeUpPending(stream_), 0u) << "the gate is closed still";
    ASSERT_EQ(madeUpOpenGate(stream_), 0);
    waiting.join();
  }
  Memory memory_{kBytes};
};

// (Its unregister would wait for the copy without us too.)
TEST_F(CudaLawsBesideAWaitingCopy, TheProgramsOwnRegisterReturns) {
  check([&] { EXPECT_EQ(cuMemHostRegister_v2(memory_.data(), kMiB, 1), kSuccess); });
  EXPECT_EQ(cuMemHostUnregister(memory_.data()), kSuccess);
}

TEST_F(CudaLawsBesideAWaitingCopy, ACopyInRowsReturns) {
  Copy2D rows{};
  rows.source = {
      .x = 0, .y = 0, .type = 1, .host = memory_.data(), .device = 0, .array = nullptr, .pitch = 8192};
  rows.destination = {.x = 0,
                      .y = 0,
                      .type = 2,
                      .host = nullptr,
                      .device = device_ + kBytes,
                      .array = nullptr,
                      .pitch = 4096};
  rows.width = 4096, rows.height = 64;
  check([&] { EXPECT_EQ(cuMemcpy2D_v2(&rows), kSuccess); });
  EXPECT_TRUE(Memory::holds(madeUpDeviceBytes(device_ + kBytes), 64 * 4096, 21));
}

TEST_F(CudaLawsBesideAWaitingCopy, ANodeOfAGraphIsMade) {
  void *graph = nullptr, *node = nullptr;
  ASSERT_EQ(cuGraphCreate(&graph, 0), kSuccess);
  Copy3D copy{};
  copy.source.type = 1, copy.source.host = memory_.data();
  copy.destination.type = 2, copy.destination.device = device_ + kBytes;
  copy.width = kMiB, copy.height = 1, copy.depth = 1;
  check([&] { EXPECT_EQ(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context_), kSuccess); });
  EXPECT_FALSE(is_registered(memory_.data()));
}

TEST_F(CudaLaws, ASmallCopyIntoABlockingStreamReturnsBesideAGatedLegacyStream) {
  Memory memory(kBytes);
  ASSERT_TRUE(register_by_use(memory));
  Stream blocking = nullptr;
  ASSERT_EQ(cuStreamCreate(&blocking, 0), kSuccess);
  memory.fill(31);
  ASSERT_EQ(madeUpCloseGate(nullptr), 0);
  ASSERT_EQ(cuMemcpyHtoDAsync_v2(device_, memory.data(), kMiB, blocking), kSuccess);
  memory.fill(32);
  ASSERT_EQ(madeUpOpenGate(nullptr), 0);
  ASSERT_EQ(cuStreamSynchronize(blocking), kSuccess);
  EXPECT_TRUE(device_holds(kMiB, 31));
}

/// Runs work on a thread with the smallest stack that a program may ask for; returns its result.
bool on_smallest_stack(bool (*work)(void*), void* argument) {
  struct Call {
    bool (*work)(void*);
    void* argument;
    bool result;
  } call{work, argument, false};
  pthread_attr_t attributes;
  pthread_t thread;
  EXPECT_EQ(::pthread_attr_init(&attributes), 0);
  EXPECT_EQ(::pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN), 0);
  const auto run = [](void* given) -> void* {
    auto* const made = static_cast<Call*>(given);
    made->result = made->work(made->argument);
    return nullptr;
  };
  EXPECT_EQ(::pthread_create(&thread, &attributes, run, &call), 0);
  EXPECT_EQ(::pthread_join(thread, nullptr), 0);
  ::pthread_attr_destroy(&attributes);
  return call.result;
}

TEST_F(CudaLaws, ThreadsWithTheSmallestStacksCopy) {
  struct Copies {
    Context context;
    DevicePointer device;
    Stream stream;
    char* memory;
  };
  const auto copy_all = [](void* given) {
    const Copies& c = *static_cast<Copies*>(given);
    bool good = cuCtxSetCurrent(c.context) == kSuccess;
    for (int i = 0; i < 4; ++i) {
      for (const std::size_t bytes : {std::size_t{4096}, kMiB, kBytes}) {
        good = good && cuMemcpyHtoD_v2(c.device, c.memory, bytes) == kSuccess &&
               cuMemcpyHtoDAsync_v2(c.device, c.memory, bytes, c.stream) == kSuccess &&
               cuMemcpyDtoH_v2(c.memory, c.device, bytes) == kSuccess &&
               cuMemcpyDtoHAsync_v2(c.memory, c.device, bytes, c.stream) == kSuccess;
      }
    }
    return good;
  };
  Memory registered(kBytes), other(kBytes);
  Copies copies{context_, device_, stream_, other.data()};
  EXPECT_TRUE(on_smallest_stack(copy_all, &copies)) << "before Pinion has started";
  ASSERT_TRUE(register_by_use(registered));
  EXPECT_TRUE(on_smallest_stack(copy_all, &copies)) << "where registering pays";
  copies.memory = registered.data();
  registered.fill(51);
  EXPECT_TRUE(on_smallest_stack(copy_all, &copies)) << "a registered buffer";
  EXPECT_TRUE(registered.holds(51));
  EXPECT_TRUE(device_holds(kBytes, 51));
  EXPECT_TRUE(is_registered(registered.data()));
}

/// Copies as the process ends, like a session of a library.
class Session {
 public:
  explicit Session(DevicePointer device) : device_(device) {}
  ~Session() {
    // The memory is new, at the address of a registration.
    memory->remap();
    memory->fill(41);
    const bool copied = cuMemcpyHtoD_v2(device_, memory->data(), memory->bytes()) == kSuccess &&
                        Memory::holds(madeUpDeviceBytes(device_), memory->bytes(), 41);
    memory->fill(0);
    const bool returned =
        cuMemcpyDtoH_v2(memory->data(), device_, memory->bytes()) == kSuccess && memory->holds(41);
    if (copied && returned) return;
    std::fprintf(stderr, "wrong bytes as the process ends: to the GPU %d, from it %d\n", !copied, !returned);
    ::_exit(1);
  }
  Memory* memory = nullptr;

 private:
  const DevicePointer device_;
};

TEST_F(CudaLaws, ADestructorOfAStaticObjectCopiesAsWithoutUs) {
  static Session session(device_);
  session.memory = new Memory(kBytes);
  ASSERT_TRUE(register_by_use(*session.memory));  // the process then ends with status 1 for wrong bytes
}

TEST_F(CudaLaws, AProcessThatIsStoppedCopiesAsWithoutUs) {
  Memory kept(kBytes), fresh(kBytes);
  ASSERT_TRUE(register_by_use(kept));
  ASSERT_FALSE(node::ask_to_stop(::getpid()));
  ASSERT_TRUE(eventually([] {
    const auto answer = node::stop_answer(::getpid());
    return answer && answer->registered == 0;
  }));
  EXPECT_FALSE(is_registered(kept.data()));
  const unsigned long long pinned = madeUpCopied(0), waited = madeUpCopied(2);
  constexpr int kCopies = 50;
  for (int i = 0; i < kCopies; ++i) {
    Memory& memory = i % 2 == 0 ? kept : fresh;
    memory.fill(i);
    ASSERT_EQ(cuMemcpyHtoD_v2(device_, memory.data(), kBytes), kSuccess);
    ASSERT_TRUE(device_holds(kBytes, i));
    memory.fill(0);
    ASSERT_EQ(cuMemcpyDtoHAsync_v2(memory.data(), device_, kBytes, stream_), kSuccess);
    ASSERT_TRUE(memory.holds(i));
  }
  EXPECT_EQ(madeUpCopied(0), pinned) << "neither registered nor staged";
  EXPECT_EQ(madeUpCopied(2), waited + 2 * kCopies * kBytes);
  EXPECT_FALSE(is_registered(kept.data()));
}

std::atomic<int> g_torn{0}, g_looks{0};

/// Looks at all bytes of a buffer on the device; they are of one value.
void look(const unsigned long long* parameters) {
  const void* const bytes = madeUpDeviceBytes(parameters[0]);
  if (!Memory::holds(bytes, parameters[1], *static_cast<const char*>(bytes))) g_torn.fetch_add(1);
  g_looks.fetch_add(1);
}

TEST_F(CudaLaws, AnotherThreadsKernelSeesACopyWholeOrNotAtAll) {
  Memory memory(kBytes);
  std::memset(madeUpDeviceBytes(device_), 0, kBytes);
  void* const kernel = madeUpKernel(look, 2);
  std::atomic<bool> done{false};
  std::thread other([&] {
    ASSERT_EQ(cuCtxSetCurrent(context_), kSuccess);
    unsigned long long device = device_, bytes = kBytes;
    void* parameters[] = {&device, &bytes};
    while (!done.load()) {
      ASSERT_EQ(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr), kSuccess);
      ::usleep(300);
    }
  });
  for (int value = 1; value < 40; ++value) {
    memory.fill(value);
    ASSERT_EQ(cuMemcpyHtoDAsync_v2(device_, memory.data(), kBytes, stream_), kSuccess);
  }
  done.store(true);
  other.join();
  ASSERT_EQ(cuStreamSynchronize(stream_), kSuccess);
  EXPECT_GT(g_looks.load(), 5);
  EXPECT_EQ(g_torn.load(), 0);
}

}  // namespace
}  // namespace pinion::test
