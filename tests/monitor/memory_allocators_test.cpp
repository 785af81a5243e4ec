// Blocks of the process's malloc, from 64 KiB to 8 MiB, allocated, grown, given back and transferred by
// several threads: with any system calls of the allocator, transfers carry the contents written last. ctest
// runs it under glibc's malloc and preloaded with others (CMakeLists.txt).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "monitor/libc_hooks.h"
#include "support/deterministic_scheduler.h"
#include "support/memory_worker.h"

namespace pinion::test {
namespace {

constexpr unsigned kThreads = 4;
constexpr std::size_t kStepsPerThread = 3'000;
constexpr std::size_t kBlocks = 16;
constexpr std::size_t kLeast = std::size_t{64} << 10, kMost = std::size_t{8} << 20;

TEST(MemoryAllocators, BlocksAreWhatWasLastWritten) {
  if (!EngineDevice::available()) GTEST_SKIP() << EngineDevice::kMissing;
  if (kSanitized) GTEST_SKIP() << "the sanitizer's allocator unmaps unseen";
  install_libc_hooks({dawdling_begin, dawdling_end});  // the engine finds other callbacks in place
  {
    World world(TransferEngine::options(RetentionKind::leave_pinned));
    const char* const preload = std::getenv("LD_PRELOAD");
    std::printf("%s: registrations are%s kept\n", preload ? preload : "libc",
                world.ring.keeps() ? "" : " not");
    for (std::size_t i = 0; i < kBlocks; ++i)
      world.places.push_back(std::make_unique<HeapPlace>(kLeast, kMost));
    world.most_pages = kMost / page_size();
    world.stacks = true;
    const auto steps = static_cast<std::size_t>(static_cast<double>(kStepsPerThread) * test_scale());
    const Counts counts = run_workers(world, kThreads, steps);
    EXPECT_GT(counts.transfers, 0u);
    EXPECT_GT(counts.held_transfers, 0u);
  }
  uninstall_libc_hooks();
}

}  // namespace
}  // namespace pinion::test
