// Real processes of a job under a limit of the node: more of them than cores, one killed in the midst of it.
// The sum of their time lines keeps to the limit, the others use the killed one's share, and no file remains.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/process.h"
#include "lease/thread_context.h"
#include "node/node_table.h"
#include "pinion/pinion.h"
#include "runlog/analysis.h"
#include "support/eventually.h"
#include "support/kept_registrations.h"
#include "support/sanitizers.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

constexpr std::size_t kBuffers = 32, kBufferBytes = 128 << 10;
constexpr std::uint64_t kLimit = kBuffers * kBufferBytes;  // each of them would fill it alone
constexpr int kProcesses = 6, kKilled = 3;
// Before one is killed; twice as many after it.
constexpr std::uint32_t kTurns = (kSanitized ? 2 : 4) * kBuffers;

/// Shared by the ranks and the test.
struct Board {
  std::atomic<std::uint64_t> key{0};
  std::atomic<std::uint32_t> turns[kProcesses] = {};   ///< transfers so far
  std::atomic<std::uint32_t> leased[kProcesses] = {};  ///< of registered memory
  std::atomic<bool> end{false};
};

void pause() { ::usleep(300); }

void* mapped(std::size_t bytes, int flags) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

/// A rank: transfers from its buffers in turn. Its exit status names the failure.
int rank(int number, const std::string& options, Board& board) {
  ::setenv("PMI_RANK", std::to_string(number).c_str(), 1);
  ::setenv("PMI_SIZE", std::to_string(kProcesses).c_str(), 1);
  board.key = node_key();
  char* memory = static_cast<char*>(mapped(kLimit, MAP_PRIVATE));
  if (!memory || pinion_start(options.c_str()) != 0) return 1;
  pinion_domain* domain = nullptr;
  if (pinion_domain_open(nullptr, nullptr, &domain) != 0) return 2;
  while (!board.end) {
    pinion_lease lease;
    char* buffer = memory + board.turns[number] % kBuffers * kBufferBytes;
    const bool ok = pinion_acquire(domain, buffer, kBufferBytes, PINION_ACCESS_WRITE, &lease) == 0;
    pause();
    if (ok) pinion_release(&lease);
    board.leased[number] += ok;
    ++board.turns[number];
    // A helper that waits for a processor falls behind; the log shall have every event.
    while (this_thread()->ring.size() > 128) pause();
  }
  return pinion_domain_close(domain) == 0 && pinion_stop() == 0 ? 0 : 3;
}

class NodeProcesses : public ::testing::TestWithParam<const char*> {};

TEST_P(NodeProcesses, KeepToTheLimitTogether) {
  TemporaryDirectory directory;
  const std::string options = std::string(GetParam()) + ",node-limit=4M,log=" + directory.path();
  auto* board = new (mapped(sizeof(Board), MAP_SHARED)) Board;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(::fork());
    ASSERT_GE(children.back(), 0);
    if (children.back() == 0) ::_exit(rank(i, options, *board));
  }
  // Waits until every rank but `except` has made so many transfers, and has had its share.
  const auto wait_for_turns = [&](std::uint32_t more, int except) {
    for (int i = 0; i < kProcesses; ++i) {
      if (i == except) continue;
      const std::uint32_t turns = board->turns[i] + more;
      EXPECT_TRUE(test::eventually([&] { return board->turns[i] >= turns && board->leased[i] > 0; }))
          << "rank " << i << " does not go on";
    }
  };
  wait_for_turns(kTurns, -1);
  ::kill(children[kKilled], SIGKILL);
  const Time killed = monotonic_now();
  wait_for_turns(2 * kTurns, kKilled);
  board->end = true;
  for (int i = 0; i < kProcesses; ++i) {
    int status = 0;
    const pid_t child = children[static_cast<std::size_t>(i)];
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(i == kKilled ? WIFSIGNALED(status) : status == 0) << "rank " << i << ": " << status;
  }
  const std::uint64_t key = board->key;
  ::munmap(board, sizeof(Board));

  std::vector<runlog::Log> logs;
  ASSERT_FALSE(runlog::read_logs({directory.path()}, logs));
  EXPECT_EQ(logs.size(), static_cast<std::size_t>(kProcesses));
  const runlog::Report report = runlog::analyse(logs);
  EXPECT_LE(report.limit_bytes, kLimit);
  runlog::Timeline survivors, all;
  for (const runlog::Log& log : logs) {
    const runlog::Timeline line = runlog::registered_timeline(log);
    if (log.header.rank != kKilled) survivors.add(line);
    // The log ends with its thread's last recorded transfer.
    Time last = 0;
    for (const runlog::Event& event : log.events)
      if (event.kind == runlog::EventKind::lease) last = std::max(last, event.end_ns);
    all.add(log.header.rank == kKilled ? line.clipped(0, last) : line);
  }
  // Each process has calibrated its clock by itself: for so long one may seem to have bytes that another has
  // just let go.
  constexpr Duration kClocksDiffer = 200 * kMicrosecond;
  Time beyond = 0;  // since then
  for (const auto& level : all.levels()) {
    if (level.bytes > kLimit) {
      if (!beyond) beyond = level.time;
    } else if (beyond) {
      EXPECT_LT(level.time - beyond, kClocksDiffer) << "beyond the limit for so many ns";
      beyond = 0;
    }
  }
  EXPECT_EQ(beyond, 0);
  if (pinion::test::kKept && report.retention == "leave-pinned") {
    std::uint64_t most = 0;
    for (const auto& level : survivors.levels())
      if (level.time > killed) most = std::max(most, level.bytes);
    EXPECT_GT(most, kLimit - kLimit / kProcesses / 2) << "what the killed one had is used";
  }
  EXPECT_FALSE(std::filesystem::exists("/dev/shm/" + node::NodeTable::name_of(key)));
}

/// A rank whose first lease lasts, as a library's pool does.
int rank_with_a_pool(Board& board) {
  ::setenv("PMI_RANK", "0", 1);
  ::setenv("PMI_SIZE", "2", 1);
  char* memory = static_cast<char*>(mapped(kLimit, MAP_PRIVATE));
  if (!memory || pinion_start("retention=helper,minimum-gain=0,node-limit=8M") != 0) return 1;
  pinion_domain* domain = nullptr;
  pinion_lease pool, lease;
  if (pinion_domain_open(nullptr, nullptr, &domain) != 0) return 2;
  if (pinion_acquire(domain, memory, kLimit - kBufferBytes, PINION_ACCESS_WRITE, &pool) != 0) return 3;
  board.key = node_key();
  while (!board.end) {
    if (pinion_acquire(domain, memory + kLimit - kBufferBytes, kBufferBytes, PINION_ACCESS_WRITE, &lease) !=
        0)
      return 4;
    pinion_release(&lease);
    pause();
  }
  pinion_release(&pool);
  return pinion_domain_close(domain) == 0 && pinion_stop() == 0 ? 0 : 5;
}

// Its need decides its part of the limit, and whether the limit binds.
TEST(NodeNeed, HasMemoryUnderALeaseThatLasts) {
  auto* board = new (mapped(sizeof(Board), MAP_SHARED)) Board;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(rank_with_a_pool(*board));
  EXPECT_TRUE(test::eventually([&] { return board->key != 0; }));
  node::NodeTable table;
  EXPECT_FALSE(table.join("/dev/shm", board->key, kLimit, node::identity_of(::getpid())));
  EXPECT_TRUE(test::eventually([&] {
    std::size_t self = 0;
    for (const node::NodeTable::Member& member : table.members(self))
      if (member.post.standing.need >= kLimit) return true;
    return false;
  }));
  table.leave();
  board->end = true;
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::munmap(board, sizeof(Board));
}

INSTANTIATE_TEST_SUITE_P(
    Policies, NodeProcesses,
    ::testing::Values("retention=leave-pinned",
                      "retention=helper,minimum-gain=0,policy=conservative,policy-every=10",
                      "retention=helper,minimum-gain=0,policy=aggressive,policy-every=10"));

}  // namespace
}  // namespace pinion
