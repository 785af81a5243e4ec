// What tests order from the made-up driver, what a program sees of memory, look-ups, forks and the exit.
#include "support/made_up_cuda_test/fixture.h"

namespace pinion::made_up_cuda {
namespace {

class MadeUpControls : public MadeUpCuda {};

/// Made before the driver has set its exit handler, so it ends after it.
struct Last {
  ~Last() {
    if (calls) ::_exit(cuda().context_synchronize());
  }
  bool calls = false;
} g_last;

// ---- what a program sees of memory ----

TEST_F(MadeUpControls, OnlyRegisteredAndDeviceMemoryHasAttributes) {
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

TEST_F(MadeUpControls, NamesAreFoundByVersionAndKindOfStream) {
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
  EXPECT_EQ(find("cuMemHostRegister", 3020, 0), nullptr);
  EXPECT_EQ(find("cuMemcpyBatchAsync", 12080, 0), symbol("cuMemcpyBatchAsync"));
  EXPECT_EQ(find("cuMemcpyBatchAsync", 13000, 0), symbol("cuMemcpyBatchAsync_v2"));
  EXPECT_EQ(find("cuGetProcAddress", 12000, 0), symbol("cuGetProcAddress_v2"));
  EXPECT_EQ(find("cuMemcpyOfTomorrow", 13000, 0), nullptr);
}

/// Each name that the driver exports can be found by its base name, and the newest version comes with the
/// newest number.
TEST_F(MadeUpControls, NewerVersionsOfANameComeWithNewerNumbers) {
  const auto found = [](const char* name, int version) {
    void* function = nullptr;
    EXPECT_EQ(cuda().get_proc_address(name, &function, version, 0, nullptr), kSuccess);
    return function;
  };
  const auto symbol = [](const char* name) { return ::dlsym(made_up().library, name); };
  EXPECT_EQ(found("cuMemHostRegister", 4000), symbol("cuMemHostRegister"));
  EXPECT_EQ(found("cuMemHostRegister", 13000), symbol("cuMemHostRegister_v2"));
  EXPECT_EQ(found("cuStreamBeginCapture", 10000), symbol("cuStreamBeginCapture"));
  EXPECT_EQ(found("cuStreamBeginCapture", 13000), symbol("cuStreamBeginCapture_v2"));
  EXPECT_EQ(found("cuMemcpyOfTomorrow", 13010), symbol("cuMemcpyOfTomorrow"));
}

// ---- what tests order ----

TEST_F(MadeUpControls, TheNthCallOfANameFails) {
  Pages memory(kMiB);
  const auto before = made_up().madeUpCalls("cuMemHostRegister_v2");
  made_up().madeUpFailCall("cuMemHostRegister_v2", 2, 2);
  EXPECT_EQ(cuda().host_register(memory.data(), 64, 0), kSuccess);
  EXPECT_EQ(cuda().host_register(memory.data() + 64, 64, 0), 2);
  EXPECT_EQ(cuda().host_register(memory.data() + 64, 64, 0), kSuccess);
  EXPECT_EQ(made_up().madeUpCalls("cuMemHostRegister_v2"), before + 3);
  EXPECT_EQ(made_up().madeUpRegisteredBytes(), 128U);
}

TEST_F(MadeUpControls, AFailedTransferHasMovedAPart) {
  Pages source(4096, 7);
  ASSERT_EQ(cuda().set_bytes(device_, 0, 8192), kSuccess);
  made_up().madeUpFailTransfer(2, 719);
  ASSERT_EQ(cuda().copy_in(device_ + 4096, source.data(), 4096), kSuccess);
  EXPECT_EQ(cuda().copy_in(device_, source.data(), 4096), 719);
  EXPECT_TRUE(device_holds(7, 2048));
  EXPECT_FALSE(device_holds(7, 4096));
  EXPECT_EQ(cuda().context_synchronize(), 719);
}

TEST_F(MadeUpControls, CopiesAreCountedByTheirWay) {
  Pages source(4 * kMiB, 7);
  unsigned long long before[3];
  for (int way = 0; way < 3; ++way) before[way] = made_up().madeUpCopied(way);
  ASSERT_EQ(cuda().copy_in_async(device_, source.data(), kMiB, stream_), kSuccess);
  ASSERT_EQ(cuda().copy_in_async(device_, source.data(), 4 * kMiB, stream_), kSuccess);
  ASSERT_EQ(cuda().host_register(source.data(), kMiB, 0), kSuccess);
  ASSERT_EQ(cuda().copy_in_async(device_, source.data(), 64, stream_), kSuccess);
  EXPECT_EQ(made_up().madeUpCopied(0) - before[0], 64U);
  EXPECT_EQ(made_up().madeUpCopied(1) - before[1], kMiB);
  EXPECT_EQ(made_up().madeUpCopied(2) - before[2], 4 * kMiB);
  ASSERT_EQ(cuda().host_unregister(source.data()), kSuccess);
}

TEST_F(MadeUpControls, AChildCannotUseTheDriver) {
  const pid_t child = ::fork();
  if (child == 0) {
    int count = 0;
    ::_exit(call<Result(int*)>("cuDeviceGetCount")(&count));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST_F(MadeUpControls, CallsAfterTheExitHandlerFail) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        g_last.calls = true;
        std::exit(0);
      },
      ::testing::ExitedWithCode(4), "");
}

TEST_F(MadeUpControls, RegisteringHoldsUpItsContextIfATestSaysSo) {
  Pages memory(kMiB);
  made_up().madeUpHoldWhileRegistering(20000);
  std::thread registering([&] {
    cuda().context_set(context_);
    EXPECT_EQ(cuda().host_register(memory.data(), kMiB, 0), kSuccess);
  });
  while (made_up().madeUpRegistrations() == 0) ::usleep(100);
  EXPECT_EQ(cuda().set_bytes(device_, 1, 64), kSuccess);
  registering.join();
  made_up().madeUpHoldWhileRegistering(0);
}

TEST_F(MadeUpControls, AnObserverSeesEachCallByItsName) {
  static std::atomic<int> registers{0};
  Pages memory(kMiB);
  made_up().madeUpAtCall([](const char* name) {
    if (std::strcmp(name, "cuMemHostRegister_v2") == 0) ++registers;
  });
  EXPECT_EQ(cuda().host_register(memory.data(), kMiB, 0), kSuccess);
  EXPECT_EQ(cuda().host_unregister(memory.data()), kSuccess);
  EXPECT_EQ(registers, 1);
}

TEST_F(MadeUpControls, WithoutADeviceInitSaysSo) {
  ::setenv("MADE_UP_CUDA_NO_DEVICE", "1", 1);
  EXPECT_EQ(cuda().init(0), 100);
  ::unsetenv("MADE_UP_CUDA_NO_DEVICE");
  EXPECT_EQ(cuda().init(0), kSuccess);
}

TEST_F(MadeUpControls, AHangEndsTheProcessWithALine) {
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
