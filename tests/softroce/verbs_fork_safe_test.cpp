// The verbs device on a libibverbs in fork-safe mode. That is chosen when a process first uses the library:
// so each case has a child, and the test a process of its own. Runs in the virtual machine
// (tests/e2e/softroce.sh).
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>

#include "device/make.h"
#include "support/hugepage_pool.h"
#include "support/in_child.h"

namespace pinion {
namespace {

// Once a part is refused, the whole is, too: the registry has to ask for the whole first.
TEST(VerbsForkSafe, RefusesPartsOfHugepages) {
  const test::HugepagePool pool(1);
  if (!pool.has_pages()) GTEST_SKIP() << "no hugepages can be reserved here";
  const test::HugetlbMemory memory(test::kHugepageBytes, nullptr, MAP_SHARED);
  ASSERT_TRUE(memory.is_mapped());
  const auto registers = [&](Range range, bool fork_safe, int expected) {
    test::in_child([&] {
      if (fork_safe) ::setenv("RDMAV_FORK_SAFE", "1", 1);  // read when the library is first used
      const DeviceResult opened = make_device("verbs", "none");
      ASSERT_FALSE(opened.error) << opened.error.message;
      Device* const device = opened.device.get();
      const Registration made = device->register_range(range, Access::all, Actor::application);
      EXPECT_EQ(made.error.code, expected) << made.error.message;
      if (!made.error) {
        EXPECT_FALSE(device->deregister(made.key, Actor::application));
      }
    });
  };
  const Range part = memory.part(page_size(), 16 * page_size());
  registers(part, false, 0);
  registers(part, true, ENOSPC);
  registers(memory.range(), true, 0);
}

}  // namespace
}  // namespace pinion
