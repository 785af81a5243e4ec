// The kernel's list of memory regions, as `pinion compare` reads it: regions of processes that began since,
// and their bytes. Runs in the virtual machine (tests/e2e/softroce.sh); by hand: build/bin/pinion softroce --
// build/tests/softroce/nic_memory_test
#include "cli/run/nic_memory.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "support/eventually.h"

namespace pinion::cli {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr std::uint64_t kRegions = 3;

struct Registered {
  explicit Registered(std::size_t regions) : memory(regions * kBytes) {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    context = count > 0 ? ibv_open_device(list[0]) : nullptr;
    ibv_free_device_list(list);
    pd = context ? ibv_alloc_pd(context) : nullptr;
    for (std::size_t i = 0; pd && i < regions; ++i)
      mrs.push_back(ibv_reg_mr(pd, memory.data() + i * kBytes, kBytes, IBV_ACCESS_LOCAL_WRITE));
  }
  bool complete() const {
    for (const ibv_mr* mr : mrs)
      if (mr == nullptr) return false;
    return !mrs.empty();
  }
  std::vector<char> memory;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  std::vector<ibv_mr*> mrs;
};

/// Registers, and ends when the pipe does.
pid_t child(int (&held)[2]) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::close(held[1]);
  const Registered registered(kRegions);
  char byte;
  ::_exit(registered.complete() && ::read(held[0], &byte, 1) == 0 ? 0 : 1);
}

TEST(NicMemory, CountsTheRegionsOfProcessesThatBeganSince) {
  const Registered older(1);  // of a process that was there before
  ASSERT_TRUE(older.complete());
  ::usleep(50'000);  // the kernel's start times have ticks of 10 ms
  NicRegionList list;
  ASSERT_TRUE(list.read()) << "no list of this kernel's";
  EXPECT_EQ(list.read()->regions, 0u);

  NicMemory memory;
  int held[2];
  ASSERT_EQ(::pipe(held), 0);
  const pid_t pid = child(held);
  EXPECT_TRUE(test::eventually([&] { return list.read()->regions == kRegions; }));
  EXPECT_EQ(list.read()->bytes, kRegions * kBytes);
  ::usleep(1'000'000);  // `memory` reads every 20 ms
  ::close(held[1]);
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(test::eventually([&] { return list.read()->regions == 0; }));

  const auto figures = memory.figures();
  ASSERT_TRUE(figures);
  EXPECT_EQ(figures->peak_regions, kRegions);
  EXPECT_EQ(figures->peak_bytes, kRegions * kBytes);
  EXPECT_GT(figures->mean_bytes, 0);
  EXPECT_LT(figures->mean_bytes, static_cast<double>(kRegions * kBytes));
}

}  // namespace
}  // namespace pinion::cli
