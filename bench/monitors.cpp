// `pinion bench monitors`: the cost of each memory monitor for threads that map, unmap, register and hit.
#include <sys/mman.h>

#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/ranges.h"
#include "monitor/monitor.h"
#include "monitor/userfault.h"

namespace pinion::cli {

namespace {

constexpr std::size_t kBytes = 64 << 10;

/// The callbacks of this process while a case runs; they take no context.
struct Events {
  static inline BenchDomain* domain = nullptr;
  static Answer begin(const MemoryChange& change) {
    domain->brackets.open(change.range);
    domain->domain.doom(change.range);
    return Answer::proceed;
  }
  static void end(Range range) { domain->brackets.close(range); }
  static void appeared(const NewMapping& mapping) { domain->domain.doom(mapping.range); }
  static bool bracketed(Range range) { return domain->brackets.opened_by_another(range); }
  static HookCallbacks callbacks() {
    return {.begin = begin, .end = end, .appeared = appeared, .bracketed = bracketed};
  }
};

/// Watched as the engine watches, for the time of one sample.
class Watched {
 public:
  Watched(MonitorKind kind, BenchDomain& domain) : monitor_(monitor_of(kind)) {
    Events::domain = &domain;
    monitor_.start(Events::callbacks());
  }
  ~Watched() { monitor_.stop(); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  MemoryMonitor* operator->() { return &monitor_; }

 private:
  MemoryMonitor& monitor_;
};

Range map() {
  void* const p = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return Range::of(p, kBytes);
}
void unmap(Range range) { ::munmap(reinterpret_cast<void*>(range.begin), range.bytes()); }

double nanoseconds(Ticks ticks, std::size_t steps) {
  return static_cast<double>(ticks) * calibration().ns_per_tick / static_cast<double>(steps);
}

/// mmap and munmap of memory that no transfer uses.
double map_and_unmap_ns() {
  return ns_a_step(20'000, [](std::size_t) { unmap(map()); });
}

/// munmap of memory that was registered once: watched, with no region in it any more.
double unmap_watched_ns(Watched& monitor) {
  constexpr std::size_t kSteps = 1'000;
  Ticks spent = 0;
  for (std::size_t i = 0; i < kSteps; ++i) {
    const Range range = map();
    static_cast<void>(monitor->watch(range));
    const Ticks begin = ticks_now();
    unmap(range);
    spent += ticks_now() - begin;
  }
  return nanoseconds(spent, kSteps);
}

/// Watching before a registration; `again`: what is watched already.
double watch_ns(Watched& monitor, bool again) {
  constexpr std::size_t kSteps = 500;
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < kSteps; ++i) ranges.push_back(map());
  const auto watch_all = [&] {
    const Ticks begin = ticks_now();
    for (const Range& range : ranges) static_cast<void>(monitor->watch(range));
    return ticks_now() - begin;
  };
  Ticks spent = watch_all();
  if (again) spent = watch_all();
  for (const Range& range : ranges) unmap(range);
  return nanoseconds(spent, kSteps);
}

/// A hit and its release, as an acquire makes it.
double hit_ns(BenchDomain& domain, Range range) {
  static thread_local RecentRegions recent;
  return ns_a_step(200'000, [&](std::size_t) {
    if (userfaultfd_handling()) wait_for_userfaultfd();
    domain.domain.release(domain.domain.try_hit(range, Access::write, recent));
  });
}

void run(Bench& bench) {
  bench.note(
      "map-and-unmap: 64 KB that no transfer uses. unmap-watched: munmap alone, of 64 KB that was registered "
      "once. "
      "watch: before the registration of 64 KB that is not watched, or is. hit: with its release.");
  std::vector<MonitorKind> kinds{MonitorKind::libc};
  if (const Error refused = userfaultfd_refused())
    bench.note(refused.message);
  else
    kinds.insert(kinds.end(), {MonitorKind::libc_userfaultfd, MonitorKind::userfaultfd});

  BenchDomain domain;
  BenchRanges registered(1);
  domain.register_all(registered.ranges);
  const auto compare = [&](const char* name, auto&& measure, bool without) {
    std::vector<BenchSubject> subjects;
    for (const MonitorKind kind : kinds) {
      subjects.push_back({to_string(kind), [&domain, kind, measure] {
                            Watched monitor(kind, domain);
                            return measure(monitor);
                          }});
    }
    if (without)
      subjects.push_back({"none", [&domain, measure] {
                            Watched monitor(MonitorKind::brackets, domain);
                            return measure(monitor);
                          }});
    bench.compare(name, "ns", "ns", subjects);
  };
  compare(
      "map-and-unmap", [](Watched&) { return map_and_unmap_ns(); }, true);
  compare("unmap-watched", unmap_watched_ns, true);
  compare(
      "watch", [](Watched& monitor) { return watch_ns(monitor, false); }, false);
  compare(
      "watch-again", [](Watched& monitor) { return watch_ns(monitor, true); }, false);
  compare(
      "hit", [&](Watched&) { return hit_ns(domain, registered.ranges[0]); }, true);
}

const BenchRegistration registration{"monitors", "Memory monitors: what watching costs", run};

}  // namespace

}  // namespace pinion::cli
