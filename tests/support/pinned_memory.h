// Memory for tests of pinning, read back from /proc/self/status, and a process's limits of it. One
// thread at a time.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <new>
#include <string>

#include "base/error.h"
#include "base/range.h"
#include "device/device.h"
#include "device/kernel/memlock.h"
#include "eventually.h"
#include "system_call_filter.h"

namespace pinion::test {

constexpr std::size_t kMiB = std::size_t{1} << 20;
inline constexpr Actor kActors[] = {Actor::application, Actor::helper};

/// Anonymous memory on ordinary pages (whole hugepages would be counted otherwise).
class Memory {
 public:
  explicit Memory(std::size_t bytes, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1) : bytes_(bytes) {
    start_ = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0));
    if (start_ == MAP_FAILED) throw std::bad_alloc();
    madvise(start_, bytes, MADV_NOHUGEPAGE);
  }
  ~Memory() {
    // The memory in the hole by now has another owner.
    const Range all = range();
    if (hole_.empty()) hole_ = {all.end, all.end};
    if (hole_.begin > all.begin) munmap(start_, hole_.begin - all.begin);
    if (hole_.end < all.end) munmap(reinterpret_cast<void*>(hole_.end), all.end - hole_.end);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Memory& touch() {
    std::memset(start_, 1, bytes_);
    return *this;
  }
  void protect(Range range, int rights) {
    ASSERT_EQ(mprotect(reinterpret_cast<void*>(range.begin), range.bytes(), rights), 0);
  }
  /// Makes a hole, at most one.
  void unmap(Range range) {
    ASSERT_EQ(munmap(reinterpret_cast<void*>(range.begin), range.bytes()), 0);
    hole_ = range;
  }
  Range range() const { return Range::of(start_, bytes_); }
  Range pages(std::size_t begin, std::size_t end) const {
    return {range().begin + begin * page_size(), range().begin + end * page_size()};
  }

 private:
  std::size_t bytes_;
  char* start_;
  Range hole_{};
};

inline std::size_t held() {
  const Memlock now = memlock();
  return now.locked + now.pinned;
}

/// Kernels before 6.13 unpin a little after the call.
inline bool held_becomes(std::size_t bytes) {
  return eventually([&] { return held() == bytes; });
}

inline bool mentions(const Error& error, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    if (std::string(error.message).find(part) == std::string::npos) return false;
  }
  return true;
}

inline std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

/// Makes this process get EPERM from io_uring_setup, as in many containers.
inline void forbid_io_uring() { ASSERT_TRUE(refuse_system_call(__NR_io_uring_setup, EPERM)); }

/// An ordinary user with `limit` bytes of RLIMIT_MEMLOCK. Only root can become one.
inline void become_ordinary_user(std::size_t limit) {
  const rlimit limits{limit, limit};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &limits), 0);
  ASSERT_EQ(setgid(65534), 0);
  ASSERT_EQ(setuid(65534), 0);
  prctl(PR_SET_DUMPABLE, 1);  // /proc/self stays readable
}

}  // namespace pinion::test
