// Regions where each may divide a mapping of the program: they leave the kernel's bound to the program.
#include "lease/mapping_room.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <fstream>
#include <memory>

#include "process/engine.h"
#include "support/fake_device.h"
#include "support/sanitizers.h"

namespace pinion {
namespace {

TEST(MappingRoom, AQuarterOfWhatTheProgramLeavesIsForRegions) {
  EXPECT_EQ(regions_for_mappings(65'530, 130, 0), 8'175u);
  EXPECT_EQ(regions_for_mappings(1'500, 500, 200), 175u) << "400 of them are the regions'";
  EXPECT_EQ(regions_for_mappings(1'500, 1'500, 0), 0u);
  EXPECT_EQ(regions_for_mappings(1'500, 100, 200), 187u) << "regions side by side share theirs";
}

TEST(MappingRoom, TheBudgetNamesTheBoundInForce) {
  Budget budget({UINT64_MAX, 100, "--limit"});
  budget.bound_regions(200);
  EXPECT_EQ(budget.most_regions(), 100u);
  EXPECT_STREQ(budget.regions_from(), "--limit-regions");
  budget.bound_regions(1);
  EXPECT_STREQ(budget.regions_from(), "vm.max_map_count");
  EXPECT_TRUE(budget.reserve(1));
  EXPECT_FALSE(budget.reserve(1));
  budget.release(1);
}

/// Many mappings of the program's: every second page lacks the rights.
class ManyMappings {
 public:
  explicit ManyMappings(std::size_t count) : bytes_(count * page_size()) {
    memory_ = static_cast<char*>(
        ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (std::size_t i = 1; i < count; i += 2) ::mprotect(memory_ + i * page_size(), page_size(), PROT_NONE);
  }
  ~ManyMappings() { ::munmap(memory_, bytes_); }
  ManyMappings(const ManyMappings&) = delete;
  ManyMappings& operator=(const ManyMappings&) = delete;

 private:
  const std::size_t bytes_;
  char* memory_;
};

TEST(MappingRoom, IdleRegionsGoWhereTheProgramHasMostMappings) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own mappings are many";
  std::size_t most = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> most;
  if (most == 0 || most > 200'000) GTEST_SKIP() << "the kernel's bound is too far away: " << most;
  constexpr std::size_t kLeft = 4'000, kBuffers = 1'500;
  Options options;
  options.retention = RetentionKind::leave_pinned;
  options.device = kAutoDevice;
  const Error error = Engine::start(options, {}, "test");
  ASSERT_FALSE(error) << error.message;
  auto made = std::make_unique<test::FakeDevice>();
  test::FakeDevice& device = *made;
  device.hides_from_children = true;
  Error refused;
  const int domain = Engine::running()->domains().add(std::move(made), refused);
  ASSERT_GE(domain, 0) << refused.message;
  const std::size_t bytes = 2 * kBuffers * page_size();
  void* const buffers = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  {
    const ManyMappings programs(most - kLeft);
    LeasePath& path = Engine::running()->lease_path();
    for (std::size_t i = 0; i < kBuffers; ++i) {
      const Address begin = reinterpret_cast<Address>(buffers) + 2 * i * page_size();
      Transfer transfer;
      ASSERT_TRUE(path.lease(*this_thread(), domain, {}, {begin, begin + page_size()}, Access::read, transfer,
                             Refusal::report));
      path.release(*this_thread(), transfer);
    }
    // The device divides nothing, so mappings of the program's are taken for the regions'.
    EXPECT_LE(device.live(), kLeft / 4);
    EXPECT_GE(device.live(), kLeft / 16) << "some stay";
  }
  Engine::stop();
  ::munmap(buffers, bytes);
}

}  // namespace
}  // namespace pinion
