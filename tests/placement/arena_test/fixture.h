// The arena of the process's heap, and what tests of requests served from it share. One arena a process; each
// test starts an engine of its own.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pinion/pinion.h"
#include "placement/arena.h"
#include "placement/hugepage_heap.h"
#include "process/engine.h"
#include "support/fake_device.h"
#include "support/in_child.h"
#include "support/memory_marks.h"

namespace pinion::arena_test {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;
inline constexpr std::size_t kArenaBytes = 256 * kMiB;

/// Advises as the program does (intercept/malloc/mappings.cpp).
inline int advise(char* at, std::size_t bytes, int advice) {
  process_arena().changes().advise(Range::of(at, bytes), advice, true);
  return ::madvise(at, bytes, advice);
}

class ArenaTest : public ::testing::Test {
 protected:
  /// Reserves the arena as the heap's library does (intercept/malloc/heap.cpp), once for all suites.
  static void SetUpTestSuite() {
    static const bool reserved = process_arena().reserve(kArenaBytes, false);
    ASSERT_TRUE(reserved);
    static const int watched =
        ::pthread_atfork([] { process_heap().before_fork(); }, [] { process_heap().after_fork_in_parent(); },
                         [] { process_heap().after_fork_in_child(); });
    ASSERT_EQ(watched, 0);
  }

  void start(std::uint64_t limit = 0, const char* device = "emulated", bool serves_peers = false,
             bool ahead = false) {
    Options options;
    options.preregister_ahead = ahead;
    options.preregister_remote = serves_peers;
    options.retention = RetentionKind::leave_pinned;
    options.device = device;
    options.nic = "none";
    if (limit != 0) options.limit = limit;
    const Error error = Engine::start(options, {}, "test");
    ASSERT_FALSE(error) << error.message;
  }
  void TearDown() override {
    Engine::stop();
    process_heap().relieve();
    EXPECT_EQ(process_arena().figures().segments, 0u) << "a segment that nobody uses stays pinned";
  }

  static char* take(std::size_t bytes, bool zeroed = false) {
    return static_cast<char*>(process_heap().allocate(bytes, 1, zeroed));
  }
  /// Two blocks of 4 MiB; the first one is filled with 7 and served.
  std::pair<char*, char*> start_with_two_blocks(const char* device) {
    start(0, device);
    char* const block = take(4 * kMiB);
    char* const other = take(4 * kMiB);
    std::memset(block, 7, 4 * kMiB);
    EXPECT_TRUE(serves(block, 4 * kMiB));
    return {block, other};
  }
  static LeasePath& lease_path() { return Engine::running()->lease_path(); }
  /// The domain that requests go to is a new one, on a device that refuses where the test wants it.
  test::FakeDevice& borrow_device(bool remote = false) {
    auto made = std::make_unique<test::FakeDevice>();
    made->remote = remote;
    test::FakeDevice& device = *made;
    Error error;
    domain_ = Engine::running()->domains().borrow(std::move(made), error);
    EXPECT_GE(domain_, 0) << error.message;
    return device;
  }
  bool lease(const char* at, std::size_t bytes, Transfer& transfer, Access access = Access::write) const {
    return lease_path().lease_in_segment(*this_thread(), domain_, Range::of(at, bytes), access, transfer);
  }
  bool serves(const char* at, std::size_t bytes) const {
    Transfer transfer;
    if (!lease(at, bytes, transfer)) return false;
    lease_path().release(*this_thread(), transfer);
    return true;
  }
  /// One by one, beside the arena.
  bool acquire(const char* at, std::size_t bytes, Transfer& transfer) const {
    return lease_path().lease_alone(*this_thread(), domain_, {}, Range::of(at, bytes), Access::write,
                                    transfer, Refusal::report);
  }
  bool acquires(const char* at, std::size_t bytes) const {
    Transfer transfer;
    if (!acquire(at, bytes, transfer)) return false;
    lease_path().release(*this_thread(), transfer);
    return true;
  }
  static std::uint64_t registrations() { return Engine::running()->counters().all().registrations; }
  static std::size_t registered() { return Engine::running()->domains().registered_bytes(); }
  template <class Condition>
  static void wait_until(Condition condition) {
    while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  static bool is_filled(const char* at, std::size_t bytes, char value) {
    return at[0] == value && std::memcmp(at, at + 1, bytes - 1) == 0;
  }

  /// The kernel's answer for the byte, without a fault.
  static bool is_readable(const char* at) {
    char copy = 0;
    const iovec to{&copy, 1}, from{const_cast<char*>(at), 1};
    return ::syscall(SYS_process_vm_readv, ::getpid(), &to, 1, &from, 1, 0) == 1;
  }
  static bool is_writable(char* at) {
    char copy = *at;
    const iovec from{&copy, 1}, to{at, 1};
    return ::syscall(SYS_process_vm_writev, ::getpid(), &from, 1, &to, 1, 0) == 1;
  }

  int domain_ = 0;
};
/// Shared memory in place of the block's, of the same contents.
inline int map_shared_over(char* at, std::size_t bytes, char value) {
  const int file = ::memfd_create("arena_test", MFD_CLOEXEC);
  EXPECT_EQ(::ftruncate(file, static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0), at);
  std::memset(at, value, bytes);
  return file;
}
inline bool file_is_filled(int file, std::size_t bytes, char value) {
  std::vector<char> contents(bytes);
  return ::pread(file, contents.data(), bytes, 0) == static_cast<ssize_t>(bytes) &&
         std::all_of(contents.begin(), contents.end(), [&](char c) { return c == value; });
}
using test::marks_at;
/// Bytes of whole pages that are resident.
inline std::size_t resident(char* at, std::size_t bytes) {
  std::vector<unsigned char> pages(bytes / page_size());
  EXPECT_EQ(::mincore(at, bytes, pages.data()), 0);
  return page_size() * static_cast<std::size_t>(std::count_if(
                           pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; }));
}
/// Limits address space, or private memory, to what the process has now: the kernel refuses more.
class Shortage {
 public:
  explicit Shortage(int resource) : resource_(resource) {
    ::getrlimit(resource_, &before_);
    rlimit least = before_;
    least.rlim_cur =
        std::min<rlim_t>(before_.rlim_cur, bytes_of(resource == RLIMIT_AS ? "VmSize:" : "VmData:"));
    ::setrlimit(resource_, &least);
  }
  ~Shortage() { ::setrlimit(resource_, &before_); }
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;

 private:
  static rlim_t bytes_of(const std::string& name) {
    std::ifstream status("/proc/self/status");
    rlim_t kilobytes = 0;
    for (std::string word; status >> word;)
      if (word == name) status >> kilobytes;
    return kilobytes << 10;
  }
  const int resource_;
  rlimit before_{};
};

}  // namespace pinion::arena_test
