#include "device/kernel/collapse.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>

#include "monitor/own_process.h"
#include "monitor/system_call.h"
#include "monitor/transparent_hugepages.h"

// Missing in the headers of kernels before 6.1.
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace pinion {

namespace {

constexpr std::size_t kLargestUnit = std::size_t{32} << 20;
constexpr int kDeadline = 6;  // SCHED_DEADLINE, which libc's headers lack

// The words of /proc/self/pagemap.
constexpr std::uint64_t kPresent = std::uint64_t{1} << 63, kOfFile = std::uint64_t{1} << 61,
                        kExclusive = std::uint64_t{1} << 56;

/// Why the unit must not be collapsed; nothing: each page is anonymous, there, and of this process alone.
std::optional<CollapseRefusal> refusal_of(Range unit, int pagemap) {
  std::array<std::uint64_t, 512> words;
  for (Address at = unit.begin; at < unit.end;) {
    const std::size_t pages = std::min<std::size_t>(words.size(), (unit.end - at) / page_size());
    const auto bytes = static_cast<ssize_t>(pages * sizeof words[0]);
    const auto offset = static_cast<off_t>(at / page_size() * sizeof words[0]);
    if (::pread(pagemap, words.data(), static_cast<std::size_t>(bytes), offset) != bytes)
      return CollapseRefusal::absent;
    for (const std::uint64_t word : std::span(words).first(pages)) {
      if ((word & kPresent) == 0) return CollapseRefusal::absent;
      if ((word & (kOfFile | kExclusive)) != kExclusive) return CollapseRefusal::shared;
    }
    at += pages * page_size();
  }
  return {};
}

CollapseRefusal refusal_of_error(int error) {
  if (error == EAGAIN) return CollapseRefusal::in_use;
  return error == ENOMEM || error == EBUSY ? CollapseRefusal::memory : CollapseRefusal::forbidden;
}

CollapseBar find_bar() {
  switch (transparent_hugepages()) {
    case TransparentHugepages::absent:
      return CollapseBar::unsupported;
    case TransparentHugepages::never:
      return CollapseBar::never;
    case TransparentHugepages::given:
      break;
  }
  const std::size_t unit = transparent_page_size();
  if (unit <= page_size()) return CollapseBar::unsupported;
  if (unit > kLargestUnit) return CollapseBar::large;
  if (::prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1) return CollapseBar::switched_off;
  // The kernel looks at the advice alone, as there is no memory.
  const bool known = !is_error(raw_system_call(SYS_madvise, arguments_of(0L, 0L, MADV_COLLAPSE)));
  return known ? CollapseBar::none : CollapseBar::old_kernel;
}

bool is_real_time(pid_t thread) {
  const int policy = ::sched_getscheduler(thread) & ~SCHED_RESET_ON_FORK;
  return policy == SCHED_FIFO || policy == SCHED_RR || policy == kDeadline;
}

void count(Collapse& done, CollapseRefusal why, std::size_t bytes) {
  done.refused_bytes[static_cast<unsigned>(why)] += bytes;
}

/// Adjacent units by one call: each begins by emptying the lists of all processors.
class Run {
 public:
  Run(Collapse& done, const PageFiles& files) : done_(done), files_(files) {}

  void add(Range unit) {
    if (!units_.empty() && units_.end != unit.begin) flush();
    if (units_.empty()) units_.begin = unit.begin;
    units_.end = unit.end;
  }
  void flush() {
    if (units_.empty()) return;
    const long result =
        raw_system_call(SYS_madvise, arguments_of(units_.begin, units_.bytes(), MADV_COLLAPSE));
    if (!is_error(result)) {
      count_made(units_.bytes());
    } else {
      const std::size_t bytes = end_of_hugepages(units_, files_) - units_.begin;
      count_made(bytes);
      count(done_, refusal_of_error(static_cast<int>(-result)), units_.bytes() - bytes);
      // EAGAIN: a page of some unit was in use, and the others have been collapsed.
      if (result != -EAGAIN) done_.error = static_cast<int>(-result);
    }
    units_ = {};
  }

 private:
  void count_made(std::size_t bytes) {
    done_.bytes += bytes;
    done_.made += bytes;
  }

  Collapse& done_;
  const PageFiles& files_;
  Range units_;
};

}  // namespace

CollapseBar collapse_bar() {
  static const CollapseBar bar = find_bar();
  return bar;
}

std::size_t collapse_unit() { return collapse_bar() == CollapseBar::none ? transparent_page_size() : 0; }

std::size_t advice_unit() {
  const bool may = collapse_bar() == CollapseBar::none || collapse_bar() == CollapseBar::old_kernel;
  return may ? transparent_page_size() : 0;
}

bool waits_matter() {
  KernelText set_aside("/sys/devices/system/cpu/isolated");
  if (const int first = set_aside.current(); first >= '0' && first <= '9') return true;
  std::error_code failed;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/thread-self/..", failed))
    if (is_real_time(std::atoi(thread.path().filename().c_str()))) return true;
  return static_cast<bool>(failed);
}

Collapse collapse(Range range, const PageFiles& files) {
  Collapse done;
  const std::size_t unit = collapse_unit();
  if (unit == 0) return done;
  const Range units{(range.begin + unit - 1) / unit * unit, range.end / unit * unit};
  Run run(done, files);
  for (Address at = units.begin; at < units.end && done.error == 0; at += unit) {
    const Range one{at, at + unit};
    if (const auto refusal = refusal_of(one, files.pagemap().get()))
      count(done, *refusal, unit);
    else if (end_of_hugepages(one, files) == one.end)
      done.bytes += unit;
    else
      run.add(one);
  }
  if (done.error == 0) run.flush();
  return done;
}

}  // namespace pinion
