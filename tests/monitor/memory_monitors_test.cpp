// The engine under each memory monitor: registrations are right after changes that only some monitors see,
// made by inline assembly and by io_uring. Proved by contents, as in memory_matrix_test.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "monitor/system_call.h"
#include "monitor/userfault.h"
#include "support/apart.h"
#include "support/eventually.h"
#include "support/sanitizers.h"
#include "support/transfer_engine.h"

namespace pinion::test {
namespace {

constexpr std::size_t kPages = 16;
constexpr std::uint64_t kOld = 1, kNew = 2;
constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;
constexpr int kReadWrite = PROT_READ | PROT_WRITE;

void* pointer(Address a) { return reinterpret_cast<void*>(a); }
template <class... T>
long raw(long number, T... arguments) {
  return raw_system_call(number, arguments_of(arguments...));
}

class Monitors : public ::testing::TestWithParam<MonitorKind> {
 protected:
  void SetUp() override {
    if (!EngineDevice::available()) GTEST_SKIP() << EngineDevice::kMissing;
    memory_ = map_apart(kPages * page_size());
    fill(memory_, kOld);
  }
  void TearDown() override {
    ring_.reset();
    ::munmap(pointer(memory_.begin), memory_.bytes());
  }
  static bool has_userfaultfd(MonitorKind kind) {
    return std::string(to_string(kind)).find("userfaultfd") != std::string::npos;
  }
  void start(MonitorKind kind, RetentionKind retention = RetentionKind::leave_pinned) {
    Options options = TransferEngine::options(retention);
    options.monitor = kind;
    ring_ = std::make_unique<TransferEngine>(options);
  }
  /// An idle registration of memory_.
  void keep() {
    ring_->acquire(memory_).release();
    // The helper may still be ending another that was there before.
    ASSERT_TRUE(eventually([&] { return ring_->device().live(memory_) <= 1; }));
    ASSERT_EQ(ring_->device().live(memory_), 1u) << "nothing is kept";
  }
  void expect_new_contents() {
    fill(memory_, kNew);
    expect_transfers(*ring_, ring_->acquire(memory_), wire_, memory_, kNew);
  }
  void map_again_unseen() {
    ASSERT_EQ(
        raw(SYS_mmap, memory_.begin, memory_.bytes(), kReadWrite, kAnonymous | MAP_FIXED_NOREPLACE, -1, 0),
        static_cast<long>(memory_.begin));
  }

  Range memory_;
  Wire wire_{kPages * page_size()};
  std::unique_ptr<TransferEngine> ring_;
};

// ---- userfaultfd's additions ----

class Unseen : public Monitors {
 protected:
  void SetUp() override {
    Monitors::SetUp();
    if (IsSkipped()) return;
    if (const Error error = userfaultfd_refused()) GTEST_SKIP() << error.message;
    start(GetParam());
    keep();
  }
};

TEST_P(Unseen, Munmap) {
  ASSERT_EQ(raw(SYS_munmap, memory_.begin, memory_.bytes()), 0);
  map_again_unseen();
  expect_new_contents();
}

TEST_P(Unseen, MunmapOfAPart) {
  const Address middle = memory_.begin + kPages / 2 * page_size();
  ASSERT_EQ(raw(SYS_munmap, middle, page_size()), 0);
  ASSERT_EQ(raw(SYS_mmap, middle, page_size(), kReadWrite, kAnonymous | MAP_FIXED_NOREPLACE, -1, 0),
            static_cast<long>(middle));
  expect_new_contents();
}

TEST_P(Unseen, MmapOver) {
  ASSERT_EQ(raw(SYS_mmap, memory_.begin, memory_.bytes(), kReadWrite, kAnonymous | MAP_FIXED, -1, 0),
            static_cast<long>(memory_.begin));
  expect_new_contents();
}

TEST_P(Unseen, MremapThatMoves) {
  const long moved =
      raw(SYS_mremap, memory_.begin, memory_.bytes(), memory_.bytes(), MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
  ASSERT_FALSE(is_error(moved));
  expect_new_contents();
  ::munmap(pointer(static_cast<Address>(moved)), memory_.bytes());
}

TEST_P(Unseen, Madvise) {
  ASSERT_EQ(raw(SYS_madvise, memory_.begin, memory_.bytes(), MADV_DONTNEED), 0);
  expect_new_contents();
}

TEST_P(Unseen, MadviseByIoUring) {
  io_uring ring;
  ASSERT_EQ(::io_uring_queue_init(2, &ring, 0), 0);
  ::io_uring_prep_madvise(::io_uring_get_sqe(&ring), pointer(memory_.begin),
                          static_cast<off_t>(memory_.bytes()), MADV_DONTNEED);
  ASSERT_EQ(::io_uring_submit_and_wait(&ring, 1), 1);
  io_uring_cqe* done = nullptr;
  ASSERT_EQ(::io_uring_wait_cqe(&ring, &done), 0);
  ASSERT_EQ(done->res, 0);
  ::io_uring_queue_exit(&ring);
  expect_new_contents();
}

/// Again and again, so that every order of the reader and the caller comes about.
TEST_P(Unseen, ManyTimes) {
  for (int i = 0; i < 500 && !HasFailure(); ++i) {
    ASSERT_EQ(raw(SYS_munmap, memory_.begin, memory_.bytes()), 0);
    map_again_unseen();
    expect_new_contents();
  }
}

/// Under a lease: its holder goes on, nobody else is let in.
TEST_P(Unseen, UnderALease) {
  TransferLease old = ring_->acquire(memory_);
  ASSERT_EQ(raw(SYS_munmap, memory_.begin, memory_.bytes()), 0);
  map_again_unseen();
  expect_new_contents();
  old.release();
  expect_new_contents();
}

/// While it is being registered.
TEST_P(Unseen, WhileRegistering) {
  ring_->let_go();
  std::atomic<int> turns{0};
  ring_->device().at = [&](TransferDevice::Moment moment, Range range, Actor) {
    if (moment != TransferDevice::Moment::registered || !range.overlaps(memory_) || turns++ > 0) return;
    raw(SYS_munmap, memory_.begin, memory_.bytes());
    raw(SYS_mmap, memory_.begin, memory_.bytes(), kReadWrite, kAnonymous | MAP_FIXED_NOREPLACE, -1, 0);
    wait_for_userfaultfd();
    fill(memory_, kNew);
  };
  const TransferLease lease = ring_->acquire(memory_);
  EXPECT_EQ(turns, 2) << "what was registered was not let go";
  expect_transfers(*ring_, lease, wire_, memory_, kNew);
}

/// Memory whose events the kernel does not report serves one lease.
TEST_P(Unseen, WhatCannotBeWatchedIsNotKept) {
  const auto other = static_cast<int>(raw(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY));
  ASSERT_GE(other, 0);
  uffdio_api api{};
  api.api = UFFD_API;
  ASSERT_EQ(::ioctl(other, UFFDIO_API, &api), 0);
  const std::size_t bytes = kPages * page_size();
  void* const start = ::mmap(nullptr, bytes, kReadWrite, kAnonymous, -1, 0);
  const Range theirs = Range::of(start, bytes);
  fill(theirs, kOld);
  uffdio_register request{};
  request.range = {theirs.begin, theirs.bytes()};
  request.mode = UFFDIO_REGISTER_MODE_WP;
  ASSERT_EQ(::ioctl(other, UFFDIO_REGISTER, &request), 0);

  TransferLease lease = ring_->acquire(theirs);
  expect_transfers(*ring_, lease, wire_, theirs, kOld);
  {
    const TransferLease second = ring_->acquire(theirs);
    EXPECT_TRUE(second);
    EXPECT_NE(second.key().handle, lease.key().handle);
  }
  lease.release();
  ring_->acquire(memory_).release();  // lets go of doomed regions
  EXPECT_TRUE(eventually([&] { return ring_->device().live(theirs) == 0; })) << "the helper keeps it";
  ::close(other);
  ::munmap(start, bytes);
}

/// A forked child is inert; the parent's registrations and events go on.
TEST_P(Unseen, AfterAFork) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::munmap(pointer(memory_.begin), memory_.bytes());
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ring_->acquire(memory_).release();
  ASSERT_EQ(raw(SYS_munmap, memory_.begin, memory_.bytes()), 0);
  map_again_unseen();
  expect_new_contents();
}

std::string name_of(const ::testing::TestParamInfo<MonitorKind>& info) {
  std::string name = to_string(info.param);
  for (char& c : name) {
    if (c == '+') c = '_';
  }
  return name;
}
INSTANTIATE_TEST_SUITE_P(, Unseen, ::testing::Values(MonitorKind::userfaultfd, MonitorKind::libc_userfaultfd),
                         name_of);

// ---- a mapping that appears where something is registered ----

TEST_F(Monitors, AMappingThatAppearsProvesThatTheOldOneHasGone) {
  start(MonitorKind::libc);
  if (!ring_->keeps()) GTEST_SKIP() << "the allocator goes past libc";
  keep();
  ASSERT_EQ(raw(SYS_munmap, memory_.begin, memory_.bytes()), 0);
  ASSERT_EQ(
      ::mmap(pointer(memory_.begin), memory_.bytes(), kReadWrite, kAnonymous | MAP_FIXED_NOREPLACE, -1, 0),
      pointer(memory_.begin));
  expect_new_contents();
}

TEST_F(Monitors, AMappingThatGrowsIntoThePlaceDoesToo) {
  start(MonitorKind::libc);
  if (!ring_->keeps()) GTEST_SKIP() << "the allocator goes past libc";
  const Range before = {memory_.begin, memory_.begin + memory_.bytes() / 2};
  memory_.begin = before.end;
  keep();
  ASSERT_EQ(raw(SYS_munmap, memory_.begin, memory_.bytes()), 0);
  ASSERT_EQ(::mremap(pointer(before.begin), before.bytes(), 2 * before.bytes(), 0), pointer(before.begin));
  expect_new_contents();
  ::munmap(pointer(before.begin), before.bytes());
}

/// The kernel may give an address anew before the event of its unmapping has been read.
TEST_F(Monitors, AddressesGivenAnewToAnotherThread) {
  if (const Error error = userfaultfd_refused()) GTEST_SKIP() << error.message;
  start(MonitorKind::libc_userfaultfd);
  for (int i = 0; i < 300 && !HasFailure(); ++i) {
    keep();
    std::thread unmaps([&] { raw(SYS_munmap, memory_.begin, memory_.bytes()); });
    while (::mmap(pointer(memory_.begin), memory_.bytes(), kReadWrite, kAnonymous | MAP_FIXED_NOREPLACE, -1,
                  0) == MAP_FAILED) {
    }
    expect_new_contents();
    unmaps.join();
    ring_->let_go();
    fill(memory_, kOld);
  }
}

// ---- the others ----

TEST_F(Monitors, BracketsAreBelieved) {
  start(MonitorKind::brackets);
  keep();
  ::madvise(pointer(memory_.begin), memory_.bytes(), MADV_NORMAL);
  EXPECT_EQ(ring_->device().live(memory_), 1u);
  memory_events::begin({memory_});
  EXPECT_FALSE(ring_->acquire(memory_));
  ::munmap(pointer(memory_.begin), memory_.bytes());
  map_again_unseen();
  memory_events::end(memory_);
  expect_new_contents();
}

TEST_F(Monitors, SymbolsThatAreNotPreloadedSeeNothingAndKeepNothing) {
  start(MonitorKind::symbols);
  EXPECT_FALSE(ring_->keeps());
  ASSERT_EQ(::munmap(pointer(memory_.begin), memory_.bytes()), 0);
  map_again_unseen();
  expect_new_contents();
}

TEST_F(Monitors, OneAfterTheOther) {
  for (const MonitorKind kind : {MonitorKind::libc, MonitorKind::userfaultfd, MonitorKind::brackets,
                                 MonitorKind::libc_userfaultfd, MonitorKind::automatic}) {
    if (has_userfaultfd(kind) && userfaultfd_refused()) continue;
    SCOPED_TRACE(to_string(kind));
    start(kind);
    EXPECT_TRUE(kSanitized || ring_->keeps());
    ring_->acquire(memory_).release();
    if (kind == MonitorKind::brackets) memory_events::begin({memory_});
    ASSERT_EQ(::munmap(pointer(memory_.begin), memory_.bytes()), 0);
    if (kind == MonitorKind::brackets) memory_events::end(memory_);
    map_again_unseen();
    expect_new_contents();
    ring_.reset();
  }
}

}  // namespace
}  // namespace pinion::test
