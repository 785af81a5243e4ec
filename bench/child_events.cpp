#include "bench/child_events.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinion::cli {

ChildEvents ChildEvents::page_faults() { return {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS}; }

ChildEvents ChildEvents::tlb_misses() {
  return {PERF_TYPE_HW_CACHE, PERF_COUNT_HW_CACHE_DTLB | PERF_COUNT_HW_CACHE_OP_READ << 8 |
                                  PERF_COUNT_HW_CACHE_RESULT_MISS << 16};
}

ChildEvents::ChildEvents(std::uint32_t type, std::uint64_t event) {
  perf_event_attr what{};
  what.size = sizeof what;
  what.type = type;
  what.config = event;
  what.inherit = 1;
  what.exclude_kernel = what.exclude_hv = 1;  // all that ordinary users may ask for
  constexpr int kThisProcess = 0, kAnyCore = -1, kNoGroup = -1;
  counter_ = KeptFile(static_cast<int>(
      ::syscall(SYS_perf_event_open, &what, kThisProcess, kAnyCore, kNoGroup, PERF_FLAG_FD_CLOEXEC)));
}

std::optional<double> ChildEvents::count() const {
  std::uint64_t events = 0;
  if (counter_.get() < 0 || ::read(counter_.get(), &events, sizeof events) != sizeof events) return {};
  return static_cast<double>(events);
}

}  // namespace pinion::cli
