// Forks beside a load of Pinion's (base/own_loading.h), which stands in the library's constructor.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "base/own_loading.h"
#include "support/gate.h"

namespace {
std::function<void()> g_in_constructor;
}  // namespace

extern "C" [[gnu::visibility("default")]] void in_plugins_constructor() { g_in_constructor(); }

namespace pinion {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

void load(const std::function<void()>& in_constructor) {
  g_in_constructor = in_constructor;
  void* const library = load_library(PINION_TEST_PLUGIN, RTLD_NOW);
  ASSERT_NE(library, nullptr) << ::dlerror();
  ::dlclose(library);
}

/// Returns how long the fork took.
milliseconds fork_once() {
  const auto begun = steady_clock::now();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  const auto took = steady_clock::now() - begun;
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  return std::chrono::duration_cast<milliseconds>(took);
}

TEST(LoadAtFork, AForkWaitsForIt) {
  test::Gate gate;
  gate.arm();
  std::thread loads([&] { load([&] { gate.pass(); }); });
  ASSERT_TRUE(gate.wait_reached());
  std::atomic<bool> forked{false};
  std::thread forks([&] {
    fork_once();
    forked = true;
  });
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(forked);
  gate.open();
  loads.join();
  forks.join();
}

TEST(LoadAtFork, ItsOwnThreadForksAtOnce) {
  milliseconds took{0};
  load([&] { took = fork_once(); });
  EXPECT_LT(took, milliseconds(900));
}

TEST(LoadAtFork, NoForkWaitsForeverForOneThatNeedsIt) {
  load([] { std::thread(fork_once).join(); });
  // The next ones find all as before.
  EXPECT_LT(fork_once(), milliseconds(900));
  load([] {});
}

}  // namespace
}  // namespace pinion
