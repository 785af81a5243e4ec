// Real processes of a job under a limit of the node: more of them than cores, one killed in the midst of it.
// The sum of their time lines keeps to the limit, what the killed one had is used by the others, nothing is
// left behind.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/process.h"
#include "pinion/pinion.h"
#include "runlog/analysis.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

constexpr std::size_t kBuffers = 32, kBufferBytes = 128 << 10;
constexpr std::uint64_t kLimit = kBuffers * kBufferBytes;  // what each of them would fill alone
constexpr int kProcesses = 6, kKilled = 3;
constexpr Duration kUntilKilled = 400 * kMillisecond, kRun = 1200 * kMillisecond;

#if defined(__SANITIZE_THREAD__)
constexpr bool kKept = false;  // its allocator unmaps unseen, so the engine keeps nothing beyond a lease
#else
constexpr bool kKept = true;
#endif

void pause(Duration time) { ::usleep(static_cast<useconds_t>(time / kMicrosecond)); }

/// A rank: transfers from its buffers in turn until `end`. What goes wrong is its exit status.
int rank(int number, const std::string& options, Time end, int answer) {
  ::setenv("PMI_RANK", std::to_string(number).c_str(), 1);
  ::setenv("PMI_SIZE", std::to_string(kProcesses).c_str(), 1);
  const std::uint64_t key = room_key();
  if (::write(answer, &key, sizeof key) != sizeof key) return 1;
  void* memory =
      ::mmap(nullptr, kLimit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED || pinion_start(options.c_str()) != 0) return 2;
  pinion_domain* domain = nullptr;
  if (pinion_domain_open(nullptr, nullptr, &domain) != 0) return 3;
  std::size_t leased = 0;
  for (std::size_t i = 0; monotonic_now() < end; ++i) {
    pinion_lease lease;
    char* buffer = static_cast<char*>(memory) + i % kBuffers * kBufferBytes;
    const bool ok = pinion_acquire(domain, buffer, kBufferBytes, PINION_ACCESS_WRITE, &lease) == 0;
    pause(300 * kMicrosecond);
    if (ok) pinion_release(&lease);
    leased += ok;
  }
  if (pinion_domain_close(domain) != 0 || pinion_stop() != 0) return 4;
  return leased > 0 ? 0 : 5;
}

class NodeProcesses : public ::testing::TestWithParam<const char*> {};

TEST_P(NodeProcesses, KeepToTheLimitTogether) {
  TemporaryDirectory directory;
  const std::string options = std::string(GetParam()) + ",node-limit=4M,log=" + directory.path();
  int answers[2];
  ASSERT_EQ(::pipe(answers), 0);
  const Time begin = monotonic_now();
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(::fork());
    ASSERT_GE(children.back(), 0);
    if (children.back() == 0) ::_exit(rank(i, options, begin + kRun, answers[1]));
  }
  std::uint64_t key = 0;
  ASSERT_EQ(::read(answers[0], &key, sizeof key), static_cast<ssize_t>(sizeof key));
  pause(kUntilKilled);
  ::kill(children[kKilled], SIGKILL);
  const Time killed = monotonic_now();
  for (int i = 0; i < kProcesses; ++i) {
    int status = 0;
    ASSERT_EQ(::waitpid(children[static_cast<std::size_t>(i)], &status, 0),
              children[static_cast<std::size_t>(i)]);
    if (i == kKilled)
      EXPECT_TRUE(WIFSIGNALED(status));
    else
      EXPECT_EQ(status, 0) << "rank " << i;
  }
  ::close(answers[0]);
  ::close(answers[1]);

  std::vector<runlog::Log> logs;
  ASSERT_FALSE(runlog::read_logs({directory.path()}, logs));
  EXPECT_EQ(logs.size(), static_cast<std::size_t>(kProcesses));
  const runlog::Report report = runlog::analyse(logs);
  EXPECT_LE(report.registered().peak, kLimit);
  EXPECT_LE(report.limit_bytes, kLimit);
  if (kKept && report.retention == "leave-pinned") {
    runlog::Timeline survivors;
    for (const runlog::Log& log : logs)
      if (log.header.rank != kKilled) survivors.add(runlog::registered_timeline(log));
    std::uint64_t most = 0;
    for (const auto& level : survivors.levels())
      if (level.time > killed) most = std::max(most, level.bytes);
    EXPECT_GT(most, kLimit - kLimit / kProcesses / 2) << "what the killed one had is used";
  }
  char name[64];
  std::snprintf(name, sizeof name, "/dev/shm/pinion-%d-%016" PRIx64, static_cast<int>(::geteuid()), key);
  EXPECT_FALSE(std::filesystem::exists(name));
}

INSTANTIATE_TEST_SUITE_P(Policies, NodeProcesses,
                         ::testing::Values("retention=leave-pinned",
                                           "retention=helper,policy=conservative,policy-every=10",
                                           "retention=helper,policy=aggressive,policy-every=10"));

}  // namespace
}  // namespace pinion
