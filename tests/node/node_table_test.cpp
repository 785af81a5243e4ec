// The table in which a node's processes meet: slots, pieces of a limit, processes that are killed, files with
// wrong contents; and the decisions of policies.
#include "node/node_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>

#include "base/process_stat.h"
#include "node/attendance.h"
#include "node/node_share.h"
#include "node/place.h"
#include "support/in_child.h"
#include "support/temporary_directory.h"

namespace pinion::node {
namespace {

constexpr std::uint64_t kLimit = 1 << 30;
constexpr std::uint64_t kJob = 7;

class NodeTableTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory;

  std::string path() const {
    std::string name;
    DIR* entries = ::opendir(directory.path().c_str());
    while (const dirent* entry = ::readdir(entries))
      if (entry->d_name[0] != '.') name = directory.path() + "/" + entry->d_name;
    ::closedir(entries);
    return name;
  }
  Error join(NodeTable& table, std::uint64_t identity, std::uint64_t limit = kLimit) {
    return table.join(directory.path(), kJob, limit, identity);
  }
  static std::uint64_t self() { return identity_of(::getpid()); }

  /// A child that joins, takes that many pieces, and waits to be killed.
  pid_t child_with(std::size_t pieces) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      NodeTable table;
      std::vector<std::uint16_t> taken;
      const bool ok = !join(table, self()) && table.take(pieces, taken);
      const char answer = ok ? 'y' : 'n';
      if (::write(ready[1], &answer, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char answer = 0;
    EXPECT_EQ(::read(ready[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    ::close(ready[0]);
    ::close(ready[1]);
    return child;
  }
  static void end(pid_t child, bool reap = true) {
    ::kill(child, SIGKILL);
    siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
    if (reap) ::waitpid(child, nullptr, 0);
  }
  static std::size_t free_pieces(NodeTable& table) {
    std::vector<std::uint16_t> taken;
    while (table.take(1, taken)) {
    }
    for (const std::uint16_t piece : taken) table.give_back(piece);
    return taken.size();
  }
};

TEST_F(NodeTableTest, TheLastToLeaveRemovesTheFile) {
  const pid_t child = child_with(1);
  {
    NodeTable table;
    ASSERT_FALSE(join(table, self()));
    EXPECT_NE(path(), "");
    table.leave();
    EXPECT_NE(path(), "") << "another is in it";
  }
  end(child);
  NodeTable table;
  ASSERT_FALSE(join(table, self()));
  table.leave();
  EXPECT_EQ(path(), "");
}

TEST_F(NodeTableTest, ProcessesSeeWhatOthersPost) {
  const pid_t child = child_with(0);
  NodeTable table;
  ASSERT_FALSE(join(table, self()));
  NodeTable::Post post;
  post.standing = {123, 456};
  post.threads = 3;
  post.allowed.set(0).set(1000);
  post.bound.set(63).set(64);
  table.post(post);
  std::size_t number = 9;
  const auto members = table.members(number);
  ASSERT_EQ(members.size(), 2u);
  ASSERT_LT(number, 2u);
  EXPECT_EQ(members[number].identity, self());
  EXPECT_EQ(members[1 - number].identity, identity_of(child));
  const NodeTable::Post& seen = members[number].post;
  EXPECT_EQ(seen.standing.need, 123u);
  EXPECT_EQ(seen.standing.tie, 456u);
  EXPECT_EQ(seen.threads, 3u);
  EXPECT_EQ(seen.allowed, post.allowed);
  EXPECT_EQ(seen.bound, post.bound);
  end(child);
}

// Also while it is a zombie: its memory is gone.
TEST_F(NodeTableTest, WhatAKilledProcessHeldIsThereAgain) {
  NodeTable table;
  ASSERT_FALSE(join(table, self()));
  const std::size_t all = free_pieces(table);
  EXPECT_EQ(all, NodeTable::kPieces);
  for (const bool reaped : {true, false}) {
    const pid_t child = child_with(300);
    EXPECT_EQ(free_pieces(table), all - 300);
    EXPECT_EQ(table.clear_up(true), 0) << "it lives";
    end(child, reaped);
    EXPECT_EQ(table.clear_up(true), 1);
    EXPECT_EQ(table.clear_up(true), 0);
    EXPECT_EQ(free_pieces(table), all);
    std::size_t number;
    EXPECT_EQ(table.members(number).size(), 1u);
    if (!reaped) ::waitpid(child, nullptr, 0);
  }
}

TEST_F(NodeTableTest, AJobThatWasKilledLeavesNothingForTheNext) {
  end(child_with(1000));
  EXPECT_NE(path(), "");
  {
    NodeTable table;  // of the same job: the existing file is used again
    ASSERT_FALSE(join(table, self(), 2 * kLimit));
    EXPECT_EQ(table.limit(), 2 * kLimit);
    EXPECT_EQ(free_pieces(table), NodeTable::kPieces);
  }
  end(child_with(1000));
  const pid_t living = child_with(1);
  remove_abandoned_tables(directory.path());
  EXPECT_NE(path(), "");
  end(living);
  remove_abandoned_tables(directory.path());
  EXPECT_EQ(path(), "");
}

// The process goes on, and knows nothing of what it had.
TEST_F(NodeTableTest, WhatAProcessHeldBeforeAnExecIsThereAgain) {
  NodeTable table;
  ASSERT_FALSE(join(table, self()));
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    NodeTable own;
    std::vector<std::uint16_t> taken;
    if (join(own, self()) || !own.take(300, taken)) ::_exit(1);
    ::dup2(ready[1], STDOUT_FILENO);
    ::execlp("sh", "sh", "-c", "echo ready; exec sleep 600", nullptr);
    ::_exit(1);
  }
  char answer = 0;
  EXPECT_EQ(::read(ready[0], &answer, 1), 1);
  EXPECT_EQ(table.clear_up(true), 1);
  EXPECT_EQ(free_pieces(table), NodeTable::kPieces);
  end(child);
  ::close(ready[0]);
  ::close(ready[1]);
}

// Programs that become servers close all.
TEST_F(NodeTableTest, AMemberThatClosesAllFilesStaysOne) {
  NodeTable table;
  ASSERT_FALSE(join(table, self()));
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    NodeTable own;
    std::vector<std::uint16_t> taken;
    if (join(own, self()) || !own.take(300, taken)) ::_exit(1);
    ::dup2(ready[1], 0);
    for (int file = 1; file < 4096; ++file) ::close(file);
    if (::write(0, "y", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char answer = 0;
  EXPECT_EQ(::read(ready[0], &answer, 1), 1);
  EXPECT_EQ(table.clear_up(true), 0);
  EXPECT_EQ(free_pieces(table), NodeTable::kPieces - 300);
  end(child);
  EXPECT_EQ(table.clear_up(true), 1);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(NodeTableTest, ForksAreNoMembers) {
  NodeTable table;
  ASSERT_FALSE(join(table, self()));
  const pid_t child = ::fork();
  if (child == 0) {
    table.leave();  // touches nothing of the parent's
    ::_exit(0);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::size_t number;
  EXPECT_EQ(table.members(number).size(), 1u);
  EXPECT_NE(path(), "");
}

TEST_F(NodeTableTest, TheFirstSaysTheLimit) {
  const pid_t child = child_with(0);
  NodeTable table;
  ASSERT_FALSE(join(table, self(), 5 << 20));
  EXPECT_EQ(table.limit(), kLimit);
  end(child);
}

TEST_F(NodeTableTest, SmallLimitsAreDealtInPages) {
  NodeTable table;
  ASSERT_FALSE(join(table, self(), 10 * page_size() + 1));
  EXPECT_EQ(table.piece_bytes(), page_size());
  EXPECT_EQ(free_pieces(table), 10u);
  ASSERT_FALSE(join(table, self(), page_size() - 1));
  EXPECT_EQ(free_pieces(table), 0u);
}

// Processes round their parts up to pieces: a hundred of them waste 1 % of the limit, and not a tenth.
TEST(NodeShare, AHundredProcessesUseNearlyAllOfTheLimit) {
  constexpr std::uint64_t kProcesses = 100;
  const std::shared_ptr<SharedTable> file = NodeTable::simulated();
  std::vector<std::unique_ptr<NodeTable>> tables;
  std::vector<std::unique_ptr<NodeShare>> shares;
  const std::uint64_t part = kLimit / kProcesses * 98 / 100;
  for (std::uint64_t i = 0; i < kProcesses; ++i) {
    tables.push_back(std::make_unique<NodeTable>());
    ASSERT_FALSE(tables.back()->join(file, kLimit, i + 1));
    shares.push_back(std::make_unique<NodeShare>(*tables.back()));
    shares.back()->raise(part);
    EXPECT_GE(shares.back()->bytes(), part) << "process " << i;
  }
}

TEST_F(NodeTableTest, ForeignFilesAreNotBelieved) {
  {
    NodeTable table;
    ASSERT_FALSE(join(table, self()));
  }
  const std::string name = directory.path() + "/" + NodeTable::name_of(kJob);
  NodeTable table;

  std::ofstream(name) << "short";
  ::chmod(name.c_str(), 0600);
  EXPECT_EQ(join(table, self()).code, EINVAL);
  ::unlink(name.c_str());

  const std::size_t bytes = [&] {
    NodeTable measured;
    EXPECT_FALSE(join(measured, self()));
    struct stat status {};
    ::stat(name.c_str(), &status);
    return static_cast<std::size_t>(status.st_size);
  }();
  std::ofstream(name) << std::string(bytes, 'x');
  ::chmod(name.c_str(), 0600);
  EXPECT_EQ(join(table, self()).code, EINVAL);
  EXPECT_FALSE(table.inside());
}

/// Runs f() in a process with process numbers of its own, and a /proc of them. False: that needs root.
bool in_container(const std::function<void()>& f) {
  constexpr int kRefused = 3;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWPID | CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      ::_exit(kRefused);
    const pid_t first = ::fork();
    if (first == 0) {
      if (::mount("proc", "/proc", "proc", 0, nullptr) != 0) ::_exit(kRefused);
      f();
      ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    ::waitpid(first, &status, 0);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kRefused) return false;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  return true;
}

// Containers may share /dev/shm: their process numbers mean nothing to each other.
TEST_F(NodeTableTest, OneLimitHoldsInAllContainersThatShareItsFile) {
  NodeTable table;
  ASSERT_FALSE(join(table, member_identity_of(::getpid())));
  std::vector<std::uint16_t> taken;
  ASSERT_TRUE(table.take(NodeTable::kPieces - 10, taken));
  const bool ran = in_container([&] {
    remove_abandoned_tables(directory.path());
    auto* const other = new NodeTable;  // never destroyed: the container ends without a word
    ASSERT_FALSE(join(*other, member_identity_of(::getpid())));
    EXPECT_EQ(other->clear_up(true), 0) << "the member outside lives";
    EXPECT_EQ(free_pieces(*other), 10u);
    ASSERT_TRUE(other->take(4, taken));
  });
  EXPECT_EQ(path(), directory.path() + "/" + NodeTable::name_of(kJob));
  if (!ran) GTEST_SKIP() << "no namespace of processes can be made here";
  EXPECT_EQ(free_pieces(table), 6u);
  EXPECT_EQ(table.clear_up(true), 1) << "the member inside has ended";
  EXPECT_EQ(free_pieces(table), 10u);
}

TEST_F(NodeTableTest, ATakenNameIsPassedBy) {
  const std::string name = directory.path() + "/" + NodeTable::name_of(kJob);
  ASSERT_EQ(::chmod(directory.path().c_str(), 01777), 0);
  std::vector<std::function<void()>> takers = {
      [&] { ASSERT_EQ(::symlink("/dev/null", name.c_str()), 0); },
      [&] { ASSERT_EQ(::mkfifo(name.c_str(), 0600), 0); },
      [&] { ASSERT_EQ(::mkdir(name.c_str(), 0700), 0); },
      [&] {
        std::ofstream(name) << "open to others";
        ASSERT_EQ(::chmod(name.c_str(), 0644), 0);
      },
      [&] {
        std::ofstream(name + "-a file of ours");
        ASSERT_EQ(::chmod((name + "-a file of ours").c_str(), 0600), 0);
        ASSERT_EQ(::link((name + "-a file of ours").c_str(), name.c_str()), 0);
      },
  };
  if (::geteuid() == 0)  // another user's file
    takers.push_back([&] {
      const pid_t child = ::fork();
      if (child == 0)
        ::_exit(::setuid(65534) != 0 || ::close(::open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0666)) != 0);
      int status = -1;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_EQ(status, 0);
    });
  for (const auto& take : takers) {
    take();
    NodeTable table, other;
    std::vector<std::uint16_t> pieces;
    ASSERT_FALSE(join(table, self()));
    ASSERT_TRUE(table.take(NodeTable::kPieces, pieces));
    // The name becomes free; the table is where it was.
    ASSERT_EQ(std::remove(name.c_str()), 0);
    ASSERT_FALSE(join(other, identity_of(::getppid())));
    EXPECT_FALSE(other.take(1, pieces)) << "a second table has dealt out the limit again";
  }
}

/// Another user's process that makes the file and has a lease on it, so that who opens it has to wait.
class LeaseHolder {
 public:
  explicit LeaseHolder(const std::string& name) {
    int ready[2];
    if (::pipe(ready) != 0) return;
    child_ = ::fork();
    if (child_ == 0) {
      ::signal(SIGIO, SIG_IGN);
      const bool has = ::setuid(65534) == 0 && ::fcntl(::open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0666),
                                                       F_SETLEASE, F_WRLCK) == 0;
      if (has && ::write(ready[1], "1", 1) == 1) ::pause();
      ::_exit(1);
    }
    ::close(ready[1]);
    char byte = 0;
    holds_ = ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
  }
  ~LeaseHolder() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  bool holds() const { return holds_; }

 private:
  pid_t child_ = -1;
  bool holds_ = false;
};

TEST_F(NodeTableTest, ANameThatAnotherUserHasALeaseOnIsPassedByAtOnce) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user's file needs root";
  ASSERT_EQ(::chmod(directory.path().c_str(), 01777), 0);
  const mode_t mask = ::umask(0);
  const LeaseHolder holder(directory.path() + "/" + NodeTable::name_of(kJob));
  ::umask(mask);
  if (!holder.holds()) GTEST_SKIP() << "no leases on files here";
  NodeTable table;
  const Time begin = monotonic_now();
  ASSERT_FALSE(join(table, self()));
  EXPECT_LT(monotonic_now() - begin, 10 * kSecond) << "it has waited for the lease";
}

TEST_F(NodeTableTest, ThatCannotBeMadeIsAnError) {
  NodeTable table;
  EXPECT_EQ(table.join(directory.path() + "/missing", kJob, kLimit, self()).code, ENOENT);
  EXPECT_FALSE(table.inside());
}

// The kernel would end the process by SIGXFSZ.
TEST_F(NodeTableTest, UnderAFileSizeLimitItCanBeJoinedAndNotMade) {
  test::in_child([&] {
    const rlimit limit{1024, RLIM_INFINITY};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    NodeTable table;
    EXPECT_EQ(join(table, self()).code, EFBIG);
  });
  NodeTable first;
  ASSERT_FALSE(join(first, self()));
  test::in_child([&] {
    const rlimit limit{1024, RLIM_INFINITY};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    NodeTable table;
    EXPECT_FALSE(join(table, self()));
  });
}

// Many processes take and give back under the eyes of each other; some are killed in the midst of it.
TEST_F(NodeTableTest, NoPieceIsEverHeldTwice) {
  NodeTable table;
  ASSERT_FALSE(join(table, self(), 64 * page_size()));
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      NodeTable own;
      if (join(own, self())) ::_exit(1);
      const auto count = static_cast<std::size_t>(i % 3 + 1);
      for (int round = 0; round < 3000; ++round) {
        std::vector<std::uint16_t> taken;
        if (!own.take(count, taken)) continue;
        std::sort(taken.begin(), taken.end());
        if (std::adjacent_find(taken.begin(), taken.end()) != taken.end()) ::_exit(2);
        for (const std::uint16_t piece : taken) own.give_back(piece);
      }
      own.leave();
      ::_exit(0);
    }
    children.push_back(child);
  }
  ::kill(children[0], SIGKILL);
  ::kill(children[3], SIGKILL);
  for (std::size_t i = 0; i < children.size(); ++i) {
    int status = 1;
    ::waitpid(children[i], &status, 0);
    EXPECT_TRUE(i % 3 == 0 || status == 0) << i;
  }
  table.clear_up(true);
  EXPECT_EQ(free_pieces(table), 64u);
}

// ---- shares ----

// Two processes' budgets (here, of two tables in one process) never have more than the limit between them.
TEST_F(NodeTableTest, BudgetsShareALimit) {
  constexpr std::uint64_t kPage = 4096;
  NodeTable tables[2];
  // The second has a parent's identity, which lives as long.
  ASSERT_FALSE(join(tables[0], self(), 100 * kPage));
  ASSERT_FALSE(join(tables[1], identity_of(::getppid()), 100 * kPage));
  NodeShare first(tables[0]), second(tables[1]);
  Budget budgets[2] = {Budget{Limits{}, &first}, Budget{Limits{}, &second}};
  EXPECT_EQ(budgets[0].most_bytes(), 0u);
  EXPECT_TRUE(budgets[0].reserve(60 * kPage));
  EXPECT_TRUE(budgets[0].others().empty());
  EXPECT_FALSE(budgets[1].reserve(60 * kPage));
  const auto others = budgets[1].others();
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0].process, ::getpid());
  EXPECT_EQ(others[0].bytes, 60 * kPage);
  std::size_t number;
  EXPECT_EQ(tables[0].members(number)[1].shortage, 60 * kPage);
  EXPECT_TRUE(budgets[1].reserve(40 * kPage));
  EXPECT_EQ(tables[0].members(number)[1].shortage, 0u) << "it got something since";
  budgets[0].release(60 * kPage);
  EXPECT_FALSE(budgets[1].reserve(kPage)) << "what was released is at hand for its own next";
  budgets[0].give_back(10 * kPage);
  EXPECT_TRUE(budgets[1].reserve(50 * kPage));
  EXPECT_FALSE(budgets[1].reserve(1));
  EXPECT_TRUE(budgets[0].reserve(10 * kPage));
  budgets[1].release(90 * kPage);
  budgets[1].end_allowance();
  EXPECT_FALSE(budgets[1].reserve(1));
  EXPECT_TRUE(budgets[0].reserve(90 * kPage));
}

TEST_F(NodeTableTest, ThreadsReserveAndGiveBack) {
  NodeTable table;
  ASSERT_FALSE(join(table, self(), 64 * page_size()));
  NodeShare share(table);
  Budget budget{Limits{}, &share};
  std::vector<std::thread> threads;
  for (std::uint64_t pages = 1; pages <= 3; ++pages) {
    threads.emplace_back([&, pages] {
      for (int i = 0; i < 5000; ++i) {
        if (!budget.reserve(pages * page_size())) continue;
        // The others come and go between two looks; this thread's bytes are covered at each.
        EXPECT_GE(budget.most_bytes(), pages * page_size());
        budget.release(pages * page_size());
        if (i % 8 == 0) budget.give_back(0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  budget.give_back(0);
  EXPECT_EQ(budget.most_bytes(), 0u);
  EXPECT_EQ(free_pieces(table), 64u);
}

// ---- policies ----

const std::vector<Standing> kFour = {{100, 1}, {400, 2}, {400, 3}, {50, 4}};
std::vector<bool> helpers(PolicyKind policy, const std::vector<Standing>& processes, int idle_cores) {
  std::vector<bool> have;
  for (std::size_t i = 0; i < processes.size(); ++i)
    have.push_back(terms_of(policy, processes, i, idle_cores, {}).helper);
  return have;
}

TEST(Policies, WhoHasAHelper) {
  using V = std::vector<bool>;
  EXPECT_EQ(helpers(PolicyKind::sleeping, kFour, 0), V(4, true));
  EXPECT_EQ(helpers(PolicyKind::none_if_busy, kFour, 0), V(4, false));
  EXPECT_EQ(helpers(PolicyKind::none_if_busy, kFour, 1), V(4, true));
  EXPECT_EQ(helpers(PolicyKind::aggressive, kFour, 0), V(4, false));
  EXPECT_EQ(helpers(PolicyKind::aggressive, kFour, 2), V(4, true));
  // The largest; between equals, whose draw is higher.
  EXPECT_EQ(helpers(PolicyKind::conservative, kFour, 0), V(4, false));
  EXPECT_EQ(helpers(PolicyKind::conservative, kFour, 1), (V{false, false, true, false}));
  EXPECT_EQ(helpers(PolicyKind::conservative, kFour, 2), (V{false, true, true, false}));
  EXPECT_EQ(helpers(PolicyKind::conservative, kFour, 9), V(4, true));
  // Alike in all: still as many as there are cores.
  const auto alike = helpers(PolicyKind::conservative, std::vector<Standing>(6, {1, 1}), 2);
  EXPECT_EQ(std::count(alike.begin(), alike.end(), true), 2);
}

// Equation (2): n helpers on a core.
TEST(Policies, TurnsOnSharedCores) {
  const std::vector<Standing> six(6);
  const TimeSlices slices{1000, 10};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(terms_of(PolicyKind::aggressive, six, i, 2, slices).turn, 3 * 1010);
    EXPECT_EQ(terms_of(PolicyKind::aggressive, six, i, 2, slices).idle_core, static_cast<int>(i % 2));
    EXPECT_EQ(terms_of(PolicyKind::aggressive, six, i, 6, slices).turn, 0) << "its own core";
    EXPECT_EQ(terms_of(PolicyKind::aggressive, six, i, 4, slices).turn, i % 4 < 2 ? 2 * 1010 : 0);
    EXPECT_EQ(terms_of(PolicyKind::conservative, six, i, 2, slices).turn, 0);
    EXPECT_EQ(terms_of(PolicyKind::sleeping, six, i, 2, slices).turn, 0);
  }
}

TEST(Policies, SharesAreInProportionToNeedWhereNotAllFits) {
  const std::vector<Standing> processes = {{600, 0}, {300, 0}, {0, 0}};
  EXPECT_EQ(fair_share(processes, 0, 1000), 600u);
  EXPECT_EQ(fair_share(processes, 0, 450), 300u);
  EXPECT_EQ(fair_share(processes, 1, 450), 150u);
  EXPECT_EQ(fair_share(processes, 2, 450), 0u);
}

TEST(CoresTest, SiblingsAreOneCore) {
  const Cores cores({0, 1, 0, 1});
  CpuSet all;
  for (int cpu : {0, 1, 2, 3, 7}) all.set(static_cast<std::size_t>(cpu));
  EXPECT_EQ(cores.count(all), 3);
  EXPECT_EQ(cores.count(CpuSet().set(0).set(2)), 1);
  EXPECT_EQ(cores.free_of(all, CpuSet().set(2)), (std::vector<int>{1, 7}));
  EXPECT_GE(Cores::of_this_machine().count(cpus_of(0)), 1);
}

TEST(ProcessStatTest, KnowsTheLivingFromTheDead) {
  const ProcessStat own = process_stat(::getpid());
  ASSERT_TRUE(own.read);
  EXPECT_EQ(own.parent, ::getppid());
  EXPECT_FALSE(has_ended(::getpid(), own.started));
  EXPECT_TRUE(has_ended(::getpid(), own.started + 1));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t info;
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_TRUE(has_ended(child, process_stat(child).started)) << "a zombie";
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(has_ended(child, 0));
}

// A process's place, from entering to leaving, beside one that runs short.
// A program's next iteration may come a second later, and finds the others careful still.
TEST_F(NodeTableTest, AShortageIsRememberedForSeconds) {
  NodeTable table, other;
  ASSERT_FALSE(join(table, self(), 100 * page_size()));
  ASSERT_FALSE(join(other, identity_of(::getppid())));
  NodeShare ours(table), theirs(other);
  Attendance attendance(other, 10);
  std::size_t number = 0;
  const auto shortage_at = [&](Duration time) {
    attendance.attend(kSecond + time, {}, number);
    return other.members(number)[number].shortage;
  };
  EXPECT_EQ(shortage_at(0), 0u);
  ours.raise(80 * page_size());
  for (const Duration posted : {5500 * kMillisecond, 30 * kSecond}) {
    theirs.raise(40 * page_size());
    EXPECT_EQ(shortage_at(posted), 40 * page_size());
    EXPECT_EQ(shortage_at(posted + 2 * kSecond), 40 * page_size());
    EXPECT_EQ(shortage_at(posted + 4500 * kMillisecond), 40 * page_size());
    shortage_at(posted + 6 * kSecond);
    EXPECT_EQ(shortage_at(posted + 12 * kSecond), 0u) << "it was not posted again";
  }
}

TEST_F(NodeTableTest, PlaceTellsWhatFollows) {
  Place::Settings settings;
  EXPECT_FALSE(Place::needed(settings));
  settings.limit = 100 * page_size();
  settings.policy = PolicyKind::aggressive;
  settings.directory = directory.path();
  settings.job = kJob;
  settings.identity = self();
  settings.every = 10;
  EXPECT_TRUE(Place::needed(settings));
  std::unique_ptr<Place> place;
  ASSERT_FALSE(Place::enter(settings, place));
  ASSERT_NE(place->allowance(), nullptr);
  Budget budget{Limits{}, place->allowance()};
  ASSERT_TRUE(budget.reserve(80 * page_size()));

  CpuSet machine, bound;  // cores 2 and 3 of four are free
  for (std::size_t cpu = 0; cpu < 4; ++cpu) machine.set(cpu);
  bound.set(0).set(1);
  const Time start = kSecond;
  const auto attend = [&](Time now) {
    return place->attend(now, 80 * page_size(), budget.bytes(), 1, machine, bound);
  };
  EXPECT_TRUE(place->due(start, 0));
  auto duty = attend(start);
  EXPECT_TRUE(duty.helper);
  EXPECT_EQ(duty.sharing.hold_at_most, UINT64_MAX);
  EXPECT_EQ(duty.sharing.at_hand, 20 * page_size());
  EXPECT_FALSE(place->due(start + 20 * kMillisecond, 9));
  EXPECT_TRUE(place->due(start + 20 * kMillisecond, 10));
  EXPECT_TRUE(place->due(start + kSecond, 0));

  NodeTable other;
  ASSERT_FALSE(join(other, identity_of(::getppid())));
  NodeShare share(other);
  Budget theirs{Limits{}, &share};
  NodeTable::Post post;
  post.standing.need = 80 * page_size();
  other.post(post);
  EXPECT_FALSE(theirs.reserve(80 * page_size()));
  EXPECT_TRUE(place->due(start + 2 * kMillisecond, 0)) << "somebody runs short";
  duty = attend(start + 2 * kMillisecond);
  EXPECT_EQ(duty.sharing.hold_at_most, 50 * page_size());
  EXPECT_EQ(duty.sharing.at_hand, 0u);
  budget.release(80 * page_size());
  budget.end_allowance();
  place->leave();
  EXPECT_FALSE(place->due(start + kSecond, 0));
}

}  // namespace
}  // namespace pinion::node
