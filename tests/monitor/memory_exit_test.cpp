// A process that ends in the middle of everything, in each way that processes end: its exit status is
// unchanged, and its registrations leave nothing pinned. Pinned pages are seen from outside by sealing the
// file: the kernel refuses while its pages may still be written.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "monitor/libc_hooks.h"
#include "support/eventually.h"
#include "support/memory_worker.h"

namespace pinion::test {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr std::size_t kPlaces = 8, kPlacePages = 16;

struct Ending {
  const char* name;
  void (*end)();
  int exits = -1;  ///< with this status
  int signal = 0;  ///< by this one
};
const Ending kEndings[] = {
    {"Exit", [] { std::exit(7); }, 7},
    {"QuickExit", [] { std::quick_exit(7); }, 7},
    {"UnderscoreExit", [] { ::_exit(7); }, 7},
    {"Killed", [] { ::kill(::getpid(), SIGKILL); }, -1, SIGKILL},
    {"ExitFromAThread", [] { std::thread([] { std::exit(7); }).join(); }, 7},
};

/// The file is registered under lease, two threads are busy, and one more ends it all.
[[noreturn]] void live_and_end(int file, void (*end)()) {
  ::alarm(240);
  // Reachable, and there to the last.
  static World* world;
  static TransferLease lease;
  install_libc_hooks({dawdling_begin, dawdling_end});
  world = new World(TransferEngine::options(RetentionKind::leave_pinned));
  for (std::size_t i = 0; i < kPlaces; ++i) {
    void* const at =
        ::mmap(nullptr, kPlacePages * page_size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(at != MAP_FAILED && ::munmap(at, kPlacePages * page_size()) == 0);
    auto place = std::make_unique<MappedPlace>(Range::of(at, kPlacePages * page_size()), world->mappings);
    world->mappings.push_back(place.get());
    world->places.push_back(std::move(place));
  }
  world->most_pages = kPlacePages;
  void* const shared = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  must(shared != MAP_FAILED);
  lease = world->ring.acquire(Range::of(shared, kBytes));
  must(static_cast<bool>(lease));
  for (unsigned i = 0; i < 2; ++i) std::thread([i] { Worker(*world, i).run(~std::size_t{0}); }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  end();
  for (;;) ::pause();
}

class MemoryExit : public ::testing::TestWithParam<Ending> {};

TEST_P(MemoryExit, LeavesNothingPinned) {
  if (!EngineDevice::available()) GTEST_SKIP() << EngineDevice::kMissing;
  const int file = ::memfd_create("registered", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(file, kBytes), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) live_and_end(file, GetParam().end);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (GetParam().signal) {
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == GetParam().signal) << status;
  } else {
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == GetParam().exits) << status;
  }
  // The kernel takes a ring down after its process is gone.
  EXPECT_TRUE(eventually([&] { return ::fcntl(file, F_ADD_SEALS, F_SEAL_WRITE) == 0; }))
      << "pages are pinned still";
  ::close(file);
}

INSTANTIATE_TEST_SUITE_P(All, MemoryExit, ::testing::ValuesIn(kEndings),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pinion::test
