// Shared by the tests of libc's hooks: callbacks that obey the hooks' law, and remember events of the memory
// of interest.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ostream>
#include <vector>

#include "monitor/hook_self_test.h"
#include "monitor/libc_hooks.h"

namespace pinion {

inline std::ostream& operator<<(std::ostream& out, const Range& r) {
  return out << std::hex << "[0x" << r.begin << ", 0x" << r.end << ")" << std::dec;
}

}  // namespace pinion

namespace pinion::libc_hooks_test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kForeignAllocator = true;  // the sanitizers' allocators make their own system calls
#else
inline constexpr bool kForeignAllocator = false;
#endif

// ---- Callbacks that obey the hooks' law and remember the events of the memory of interest

struct Event {
  bool is_begin;
  Range range;
  bool intact;  ///< the probed page was there, with its contents
};

inline constexpr char kContents = 0x5a;
inline std::array<Event, 4096> events;
inline std::atomic<std::size_t> event_count{0};
inline std::atomic<Address> interest_begin{0}, interest_end{0};
inline std::atomic<Address> probe{0};
inline std::atomic<std::uint64_t> begins{0}, ends{0};
inline std::atomic<void (*)()> on_begin{nullptr};

inline bool is_resident(Address address) {
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(page_floor(address)), 1, &resident) == 0 && (resident & 1) != 0;
}

inline void remember(bool is_begin, Range range) {
  if (!range.overlaps({interest_begin.load(), interest_end.load()})) return;
  const Address at = probe.load();
  const bool intact = at != 0 && is_resident(at) && *reinterpret_cast<volatile char*>(at) == kContents;
  const std::size_t slot = event_count.fetch_add(1);
  if (slot < events.size()) events[slot] = {is_begin, range, intact};
}

inline Answer note_begin(const MemoryChange& change) {
  begins.fetch_add(1);
  remember(true, change.range);
  if (const auto action = on_begin.load()) action();
  errno = EDOM;  // a callback may spoil errno; callers must not see it
  return Answer::proceed;
}

inline void note_end(Range range) {
  ends.fetch_add(1);
  remember(false, range);
  errno = EDOM;
}

inline void watch(Range range, const void* probed = nullptr) {
  event_count = 0;
  probe = reinterpret_cast<Address>(probed);
  interest_begin = range.begin;
  interest_end = range.end;
}

/// The events since watch(); ends it.
inline std::vector<Event> seen() {
  interest_begin = interest_end = 0;
  return {events.begin(), events.begin() + std::min<std::size_t>(event_count, events.size())};
}

/// The ranges in the order of their begins, after checking that the brackets nest.
inline std::vector<Range> seen_ranges() {
  std::vector<Range> ranges, open;
  for (const Event& event : seen()) {
    if (event.is_begin) {
      ranges.push_back(event.range);
      open.push_back(event.range);
    } else {
      EXPECT_FALSE(open.empty());
      if (open.empty()) break;
      EXPECT_EQ(open.back(), event.range);
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
  return ranges;
}

using Ranges = std::vector<Range>;

inline char* map_pages(std::size_t pages, int flags = 0) {
  void* const p =
      mmap(nullptr, pages * page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  EXPECT_NE(p, MAP_FAILED);
  std::memset(p, kContents, pages * page_size());
  return static_cast<char*>(p);
}

class LibcHooks : public testing::Test {
 protected:
  void SetUp() override {
    begins = ends = 0;
    const HookReport report = install_libc_hooks({note_begin, note_end});
    ASSERT_TRUE(report.complete) << report.error.message;
  }
  void TearDown() override {
    on_begin = nullptr;
    seen();
    uninstall_libc_hooks();
    EXPECT_FALSE(hooks_intact());
  }
  const std::size_t page_ = page_size();
};

}  // namespace pinion::libc_hooks_test
