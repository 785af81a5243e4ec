// Threads of a program use the made-up driver side by side, and each finds its own contents.
#include <random>

#include "support/made_up_cuda_test/fixture.h"

namespace pinion::made_up_cuda {
namespace {

class MadeUpThreads : public MadeUpCuda {
 protected:
  static constexpr std::size_t kBytes = 256 * kKiB;
  static constexpr int kSteps = 400;

  /// Random copies of one thread, in a stream of its own, or in the legacy one.
  void run(unsigned seed, Stream stream, bool blocking) {
    cuda().context_set(context_);
    std::mt19937 random(seed);
    Pages memory(kBytes), target(kBytes);
    const DevicePointer device = device_ + seed * kBytes;
    bool registered = false;
    for (int step = 0; step < kSteps; ++step) {
      const char value = static_cast<char>(1 + step % 100);
      if (random() % 4 == 0) {
        const Result changed = registered ? cuda().host_unregister(memory.data())
                                          : cuda().host_register(memory.data(), kBytes, kPortable);
        ASSERT_EQ(changed, kSuccess);
        registered = !registered;
      }
      memory.fill(value);
      // A stream that does not block may run before the device has what a sync copy has read.
      if (blocking && random() % 2) {
        ASSERT_EQ(cuda().copy_in(device, memory.data(), kBytes), kSuccess);
      } else {
        ASSERT_EQ(cuda().copy_in_async(device, memory.data(), kBytes, stream), kSuccess);
        // Pageable memory may change at once, registered memory after the copy.
        if (registered) {
          ASSERT_EQ(cuda().stream_synchronize(stream), kSuccess);
        }
        memory.fill(0);
      }
      ASSERT_EQ(cuda().copy_out_async(target.data(), device, kBytes, stream), kSuccess);
      ASSERT_TRUE(target.all(value)) << "step " << step;
    }
    if (registered) {
      ASSERT_EQ(cuda().host_unregister(memory.data()), kSuccess);
    }
  }
};

TEST_F(MadeUpThreads, FindTheirContents) {
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    Stream stream = nullptr;
    ASSERT_EQ(cuda().stream_create(&stream, seed == 2 ? gpu::kNonBlocking : 0), kSuccess);
    threads.emplace_back([this, seed, stream] { run(seed, seed == 3 ? kThreadStream : stream, seed != 2); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made_up().madeUpRegistrations(), 0U);
}

}  // namespace
}  // namespace pinion::made_up_cuda
