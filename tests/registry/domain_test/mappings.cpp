// The bound of regions where registrations divide the program's mappings (Budget::bound_regions()).

#include <gtest/gtest.h>

#include <string>

#include "fixture.h"

namespace pinion::domain_test {
namespace {

TEST_F(RegistryTest, IdleRegionsGoWhereMappingsBecomeShort) {
  for (std::size_t i = 0; i < 8; ++i) idle(pages(4 * i, 4 * i + 2));
  EXPECT_EQ(device.live(), 8u);
  budget->bound_regions(3);
  idle(pages(40, 42));
  EXPECT_EQ(device.live(), 3u);
  for (Region* region : domain->begin_shrink(UINT64_MAX, 2)) retire_claimed(*domain, region, Actor::helper);
  EXPECT_EQ(device.live(), 2u);
  budget->bound_regions(9);
  for (std::size_t i = 0; i < 8; ++i) idle(pages(4 * i, 4 * i + 2));
  EXPECT_GE(device.live(), 8u) << "there is room again";
}

TEST_F(RegistryTest, ARefusalForMappingsNamesTheirBound) {
  budget->bound_regions(1);
  Region* const region = acquire(pages(0, 2));
  auto more = ticket(pages(4, 6));
  EXPECT_EQ(run(more), Step::refused);
  EXPECT_NE(std::string(more.result().error.message).find("1 region (vm.max_map_count)"), std::string::npos)
      << more.result().error.message;
  domain->release(region);
}

}  // namespace
}  // namespace pinion::domain_test
