// Random programs against a model of their memory's contents (support/memory_worker.h): mappings, blocks of
// malloc, System V segments, the break, a library's data, stacks, forks, all at once.
// PINION_TEST_SCALE multiplies the steps.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "monitor/libc_hooks.h"
#include "support/deterministic_scheduler.h"
#include "support/memory_worker.h"

namespace pinion::test {
namespace {

constexpr unsigned kThreads = 4;
constexpr std::size_t kStepsPerThread = kSanitized ? 5'000 : 20'000;
constexpr std::size_t kMappings = 24, kBlocks = 8, kSegments = 4;
constexpr std::size_t kPlacePages = 24;  ///< of each
constexpr std::size_t kBlockPages = 48;  ///< of each at most

struct Program {
  const char* name;
  const char* options;
};
const Program kPrograms[] = {
    {"LeavePinned", "retention=leave-pinned"},
    {"LeavePinnedLimited", "retention=leave-pinned,limit=1M"},
    {"LeavePinnedFewRegions", "retention=leave-pinned,limit-regions=6"},
    {"Lru", "retention=lru,lru-size=512K"},
    {"Helper", "retention=helper,minimum-gain=0"},
    {"HelperLimited", "retention=helper,minimum-gain=0,limit=1M"},
    {"OnDemand", "retention=on-demand"},
};

/// Mappings and segments lie side by side, far below the kernel's own choice of addresses. Otherwise it would
/// fill the gaps with other memory, and little of the places would be left in the end.
void settle(World& world) {
  constexpr Address kFarBelow = Address{1} << 36;
  const std::size_t bytes = kPlacePages * page_size();
  const auto reserve = [&](void* hint) {
    void* const all =
        ::mmap(hint, (kMappings + kSegments) * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(all != MAP_FAILED);
    must(::munmap(all, (kMappings + kSegments) * bytes) == 0);
    return all;
  };
  void* const all = reserve(pointer(reinterpret_cast<Address>(reserve(nullptr)) - kFarBelow));
  const auto nth = [&](std::size_t i) {
    const Address begin = reinterpret_cast<Address>(all) + i * bytes;
    return Range{begin, begin + bytes};
  };
  for (std::size_t i = 0; i < kMappings; ++i) {
    auto place = std::make_unique<MappedPlace>(nth(i), world.mappings);
    world.mappings.push_back(place.get());
    world.places.push_back(std::move(place));
  }
  for (std::size_t i = kMappings; i < kMappings + kSegments; ++i)
    world.places.push_back(std::make_unique<SegmentPlace>(nth(i)));
  world.places.push_back(std::make_unique<BreakPlace>(kPlacePages));
  world.places.push_back(std::make_unique<LibraryPlace>(PINION_TEST_PLUGIN));
  world.library = world.places.back().get();
  // The sanitizers' malloc unmaps unseen, which no engine can be right about.
  for (std::size_t i = 0; i < kBlocks && !kSanitized; ++i)
    world.places.push_back(std::make_unique<HeapPlace>(2 * page_size(), kBlockPages * page_size()));
  world.most_pages = std::max(kPlacePages, kBlockPages);
  world.forks = world.stacks = true;
}

class MemoryContents : public ::testing::TestWithParam<Program> {};

TEST_P(MemoryContents, AreWhatWasLastWritten) {
  if (!EngineDevice::available()) GTEST_SKIP() << EngineDevice::kMissing;
  // Blocks of both kinds: mappings of their own, and parts of heaps.
  ::mallopt(M_MMAP_THRESHOLD, static_cast<int>(kBlockPages / 2 * page_size()));
  install_libc_hooks({dawdling_begin, dawdling_end});  // the engine finds other callbacks in place
  Options options;
  ASSERT_FALSE(parse_options(options, GetParam().options));
  {
    World world(options);
    settle(world);
    const auto steps = static_cast<std::size_t>(static_cast<double>(kStepsPerThread) * test_scale());
    const Counts counts = run_workers(world, kThreads, steps);
    EXPECT_GT(counts.transfers, 0u);
    EXPECT_GT(counts.held_transfers, 0u);
    EXPECT_GT(counts.forks, 0u);
    for (const MappedPlace* place : world.mappings) {
      // The hooks see all events: nothing is watched by userfaultfd.
      EXPECT_TRUE(place->refused_moves == 0 || kSanitized) << place->refused_moves;
    }
    const Limits& limits = world.ring.engine().budget().limits();
    EXPECT_LE(world.ring.counters().registered_peak_bytes, limits.bytes);
    // There is room for everything at once, and for as much again under older leases.
    const std::size_t places = kMappings + kSegments + 2 + kBlocks;
    if (limits.bytes >= 2 * places * kBlockPages * page_size() && !options.limit_regions) {
      EXPECT_EQ(counts.refused, 0u);
    }
  }
  uninstall_libc_hooks();
}

INSTANTIATE_TEST_SUITE_P(All, MemoryContents, ::testing::ValuesIn(kPrograms),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pinion::test
