// `pinion bench events`: the cost of memory events for threads that unmap, with the engine's own hooks in
// place.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/ranges.h"
#include "device/kernel/pin.h"
#include "monitor/libc_hooks.h"
#include "monitor/memory_events.h"

namespace pinion::cli {

namespace {

constexpr std::size_t kPairs = 20'000;

/// Dooms as the engine's sink does. One for the process: sinks are never destroyed.
class Doomer final : public MemorySink {
 public:
  Answer changing(const MemoryChange& change) override {
    domain->domain.doom(change.range);
    return Answer::proceed;
  }
  BenchDomain* domain = nullptr;
};
Doomer g_doomer;

/// Its events are those of one domain, for the time of one sample.
class Doomed {
 public:
  explicit Doomed(BenchDomain& domain) {
    g_doomer.domain = &domain;
    if (const Error error = memory_events::add(g_doomer)) throw Failure(error.message);
  }
  ~Doomed() { memory_events::remove(g_doomer); }
  Doomed(const Doomed&) = delete;
  Doomed& operator=(const Doomed&) = delete;
};

/// Hooked as the engine hooks.
class Hooked {
 public:
  explicit Hooked(BenchDomain& domain) : doomed_(domain) {
    install_libc_hooks({memory_events::begin, memory_events::end});
  }
  ~Hooked() { uninstall_libc_hooks(); }
  Hooked(const Hooked&) = delete;
  Hooked& operator=(const Hooked&) = delete;

 private:
  const Doomed doomed_;
};

/// ns a munmap of one untouched page and the mmap before it.
double map_and_unmap_ns() {
  return ns_a_step(kPairs, [](std::size_t) {
    void* const p = ::mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::munmap(p, page_size());
  });
}

void nothing_in_range(Bench& bench, const char* name, std::size_t registered) {
  BenchRanges memory(registered);
  BenchDomain own;
  own.register_all(memory.ranges);
  bench.compare(name, "ns", "ns",
                {{"pinion",
                  [&] {
                    const Hooked hooked(own);
                    return map_and_unmap_ns();
                  }},
                 {"glibc", map_and_unmap_ns}});
}

/// us of one munmap with `count` regions in its range; and of their way out afterwards, region by region,
/// which is the helper's.
void regions_in_range(Bench& bench, std::size_t count) {
  const auto unmap_us = [count](bool registered) {
    BenchDomain own;
    auto memory = std::make_unique<BenchRanges>(count);
    if (registered) own.register_all(memory->ranges);
    const Hooked hooked(own);
    const Ticks begin = ticks_now();
    memory.reset();
    const Ticks took = ticks_now() - begin;
    while (Region* region = own.domain.begin_reap()) retire_claimed(own.domain, region, Actor::helper);
    return static_cast<double>(took) * calibration().ns_per_tick / 1000;
  };
  bench.compare(
      "munmap-of-" + std::to_string(count), "us", "us",
      {{"pinion", [&] { return unmap_us(true); }}, {"nothing registered", [&] { return unmap_us(false); }}});
}

void bracket_alone(Bench& bench, const char* name, std::size_t registered) {
  BenchRanges memory(registered);
  BenchDomain own;
  own.register_all(memory.ranges);
  const Address far = memory.ranges.back().end + (Address{1} << 30);
  bench.compare(name, "ns", "ns", {{"pinion", [&] {
                                      const Doomed doomed(own);
                                      return ns_a_step(kPairs, [&](std::size_t) {
                                        const Range range{far, far + page_size()};
                                        memory_events::begin({range});
                                        memory_events::end(range);
                                      });
                                    }}});
}

/// A system call by number that changes no memory.
void unrelated_syscall(Bench& bench) {
  const auto syscall_ns = [] { return ns_a_step(kPairs, [](std::size_t) { ::syscall(SYS_getppid); }); };
  BenchDomain own;
  bench.compare("unrelated-syscall", "ns", "ns",
                {{"pinion",
                  [&] {
                    const Hooked hooked(own);
                    return syscall_ns();
                  }},
                 {"glibc", syscall_ns}});
}

/// A fork with 64 MB pinned, with the same let go before and registered again after, and with nothing pinned.
void forks(Bench& bench) {
  const auto device = make_pin_device();
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  void* const memory =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  const Range range = Range::of(memory, kBytes);
  const auto fork_us = [&](bool pinned, bool let_go) {
    Registration registration;
    if (pinned) registration = device->register_range(range, Access::all, Actor::application);
    const Ticks begin = ticks_now();
    // Memory that stays registered shows in the times.
    if (let_go) static_cast<void>(device->deregister(registration.key, Actor::application));
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    Ticks took = ticks_now() - begin;
    ::waitpid(child, nullptr, 0);
    const Ticks again = ticks_now();
    if (let_go) registration = device->register_range(range, Access::all, Actor::application);
    if (let_go) took += ticks_now() - again;
    if (pinned) static_cast<void>(device->deregister(registration.key, Actor::application));
    return static_cast<double>(took) * calibration().ns_per_tick / 1000;
  };
  bench.compare("fork-64M", "us", "us",
                {{"pinned", [&] { return fork_us(true, false); }},
                 {"pinion", [&] { return fork_us(true, true); }},
                 {"nothing pinned", [&] { return fork_us(false, false); }}});
  ::munmap(memory, kBytes);
}

void run(Bench& bench) {
  bench.note(
      "map-and-unmap: one untouched page, nothing of it registered. bracket: an event alone, without the "
      "system "
      "call. munmap-of-N: N registered ranges of 64 KB in one munmap; their deregistration is the helper's "
      "and "
      "not in it. fork-64M: `pinion` lets go, forks, and registers again.");
  nothing_in_range(bench, "map-and-unmap", 1);
  nothing_in_range(bench, "map-and-unmap-beside-64k", 1 << 16);
  bracket_alone(bench, "bracket", 1);
  bracket_alone(bench, "bracket-beside-64k", 1 << 16);
  for (const std::size_t count : {1, 256, 10'000}) regions_in_range(bench, count);
  unrelated_syscall(bench);
  forks(bench);
}

const BenchRegistration registration{"events", "Memory events: what unmapping and forking cost", run};

}  // namespace

}  // namespace pinion::cli
