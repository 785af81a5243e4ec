// `pinion bench prereg`: a registration as a transfer meets it: on demand, left pinned, and served by the
// arena, over sizes, as Figure 3a of Gerofi, Takagi and Ishikawa (EuroMPI 2016) has it. Then their Figure 3b:
// an MPI_Allreduce whose buffers are new in each call (in the program bench/programs/p2p.cpp).
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

#include "bench/api.h"
#include "bench/bench.h"
#include "bench/mpi.h"
#include "bench/prereg_nodes.h"
#include "bench/ranges.h"
#include "cli/run/log_directory.h"
#include "device/model/cost_model.h"
#include "placement/hugepage_heap.h"
#include "process/engine.h"

namespace pinion::cli {

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kSteps = 100'000;
/// An assumption: the paper has only a plot of it.
constexpr double kOffloadNs = 10'000;
/// MiB, and what the paper saves, in %.
constexpr std::pair<std::uint64_t, double> kAllreduceSizes[] = {{2, 15}, {4, 12}};

/// Touched memory, of the arena or beside it.
class Buffer {
 public:
  Buffer(std::size_t bytes, bool in_arena) : in_arena_(in_arena) {
    void* const at = in_arena
                         ? process_heap().allocate(bytes, 1, false)
                         : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == nullptr || at == MAP_FAILED) throw Failure("memory is short");
    range = Range::of(at, bytes);
  }
  ~Buffer() {
    void* const at = reinterpret_cast<void*>(range.begin);
    if (in_arena_)
      process_heap().free(at);
    else
      ::munmap(at, range.bytes());
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void touch() const { std::memset(reinterpret_cast<void*>(range.begin), 1, range.bytes()); }

  Range range;

 private:
  bool in_arena_;
};

/// A way to have memory registered for a transfer.
struct Scheme {
  const char* name;
  const char* retention;
  std::string nic;  ///< of device emulated; empty: device pin
  bool in_arena = false;
  bool touched = true;

  /// Only the program's own calls change memory here, and it makes none under a registration.
  std::string options() const {
    return fmt::format("retention={},monitor=brackets,{}", retention,
                       nic.empty() ? "device=pin" : "device=emulated,nic=" + nic);
  }
};

/// Measures an acquire and its release. Slow ones are few, and their mean counts.
double request_ns(const Scheme& scheme, std::size_t bytes) {
  const ApiDomain api(scheme.options());
  if (!scheme.touched) {
    constexpr int kBuffers = 4;
    api.use(Buffer(page_size(), false).range);  // the first one opens the kernel's ring
    Ticks sum = 0;
    for (int i = 0; i < kBuffers; ++i) {
      const Buffer buffer(bytes, false);
      const Ticks begin = ticks_now();
      api.use(buffer.range);
      sum += ticks_now() - begin;
    }
    return static_cast<double>(sum) * calibration().ns_per_tick / kBuffers;
  }
  const Buffer buffer(bytes, scheme.in_arena);
  buffer.touch();
  api.use(buffer.range);
  if (scheme.retention == std::string("on-demand"))
    return ns_a_step(16, [&](std::size_t) { api.use(buffer.range); });
  return best_ns_a_step(kSteps, [&](std::size_t) { api.use(buffer.range); });
}

/// The arena's part alone, as fronts call it.
double arena_lease_ns() {
  const ApiDomain api("retention=leave-pinned,monitor=brackets,device=emulated,nic=connectx");
  const Buffer buffer(kMiB, true);
  buffer.touch();
  LeasePath& leases = Engine::running()->lease_path();
  ThreadContext& thread = *this_thread();
  Transfer transfer;
  std::size_t passed = 0;
  const auto use = [&](std::size_t) {
    if (leases.lease_in_segment(thread, 0, buffer.range, Access::write, transfer))
      leases.release(thread, transfer);
    else
      ++passed;
  };
  use(0);
  const double ns = best_ns_a_step(kSteps, use);
  if (passed != 0) throw Failure("the arena serves nothing");
  return ns;
}

/// At 1 MiB a scheme is a case by its name alone.
std::string case_name(const Scheme& scheme, std::size_t bytes) {
  return bytes == kMiB ? scheme.name : fmt::format("{}-{}", scheme.name, size_name(bytes));
}

void add_median_ratio(Bench& bench, const char* name, const char* over) {
  double value = 0, reference = 0;
  for (const BenchRow& row : bench.rows()) {
    if (row.subject != "pinion" || row.metric != "ns") continue;
    if (row.name == name) value = row.value;
    if (row.name == over) reference = row.value;
  }
  if (value > 0) bench.add(name, "pinion", fmt::format("faster_than_{}", over), "times", {reference / value});
}

/// NIC connectx with a constant more for each registration.
std::string offloading_nic(const TemporaryLogDirectory& directory) {
  const CostModel costs = load_cost_model("connectx").model;
  const std::string path = directory.path() + "/offloaded.nic";
  std::ofstream(path) << fmt::format(
      "register_ns_per_page={}\nregister_ns_base={}\nderegister_ns_per_page={}\nderegister_ns_base={}\n",
      costs.register_ns_per_page, costs.register_ns_base + kOffloadNs, costs.deregister_ns_per_page,
      costs.deregister_ns_base + kOffloadNs);
  return path;
}

void measure_requests(Bench& bench) {
  const TemporaryLogDirectory directory;
  const Scheme schemes[] = {{"unfaulted", "on-demand", "connectx", false, false},
                            {"on-demand", "on-demand", "connectx"},
                            {"offloaded", "on-demand", offloading_nic(directory)},
                            {"leave-pinned", "leave-pinned", "connectx"},
                            {"arena", "leave-pinned", "connectx", true}};
  for (const std::size_t bytes : {kMiB / 16, kMiB / 4, kMiB, 4 * kMiB, 16 * kMiB})
    for (const Scheme& scheme : schemes) {
      std::vector<BenchSubject> subjects{{"pinion", [&] { return request_ns(scheme, bytes); }}};
      if (bytes == kMiB && std::strcmp(scheme.name, "offloaded") != 0) {
        Scheme pin = scheme;
        pin.nic.clear();
        subjects.push_back({"pinion-pin", [=] { return request_ns(pin, bytes); }});
      }
      if (bytes == kMiB && scheme.in_arena)
        subjects.push_back({"atomic-pair", [] { return atomic_pair_ns(kSteps); }});
      bench.compare(case_name(scheme, bytes), "ns", "ns", subjects);
    }
  bench.compare("arena-lease", "ns", "ns",
                {{"pinion", arena_lease_ns}, {"atomic-pair", [] { return atomic_pair_ns(kSteps); }}});
  add_median_ratio(bench, "arena", "on-demand");
  add_median_ratio(bench, "arena", "unfaulted");
  bench.add("arena", "paper", "faster_than_unfaulted", "times", {100});
  bench.note(
      "An acquire and its release by the C API; 1 MiB where a case names no size. pinion: device emulated, "
      "NIC "
      "connectx, modelled; pinion-pin: pinned by the kernel, without a NIC's cost. unfaulted: memory never "
      "touched, on demand. arena-lease: the arena's part alone, as fronts call it.");
  bench.note(
      fmt::format("offloaded: {:.0f} us more for each call, an assumption; the paper plots a constant. Its "
                  "text has up to "
                  "two orders of magnitude between unfaulted and pre-registered memory.",
                  kOffloadNs / 1000));
}

// ---- munmap ----

/// The time of `unmap(range)` for touched memory that `map(bytes)` has mapped, the mean of some.
template <class Map, class Unmap>
double unmap_us(std::size_t bytes, Map&& map, Unmap&& unmap) {
  constexpr int kTimes = 16;
  const ApiDomain api("retention=leave-pinned,monitor=brackets,device=pin");
  Ticks sum = 0;
  for (int i = 0; i < kTimes; ++i) {
    void* const at = map(bytes);
    if (at == nullptr || at == MAP_FAILED) throw Failure("memory is short");
    const Range range = Range::of(at, bytes);
    std::memset(at, 1, bytes);
    api.use(range);
    const Ticks begin = ticks_now();
    unmap(range);
    sum += ticks_now() - begin;
  }
  return static_cast<double>(sum) * calibration().ns_per_tick / kTimes / 1000;
}

double unmap_in_arena_us(std::size_t bytes) {
  return unmap_us(
      bytes, [](std::size_t size) { return process_heap().map(size); },
      [](Range range) {
        if (!process_heap().unmap(range)) throw Failure("the heap is busy");
      });
}

/// Registered beside the arena: the registration ends first.
double unmap_beside_us(std::size_t bytes) {
  return unmap_us(
      bytes,
      [](std::size_t size) {
        return ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      },
      [](Range range) {
        void* const at = reinterpret_cast<void*>(range.begin);
        must(pinion_memory_begin(at, range.bytes()));
        ::munmap(at, range.bytes());
        must(pinion_memory_end(at, range.bytes()));
      });
}

void measure_unmapping(Bench& bench) {
  for (const std::size_t bytes : {kMiB, 4 * kMiB})
    bench.compare("munmap-" + size_name(bytes), "us", "us",
                  {{"arena", [=] { return unmap_in_arena_us(bytes); }},
                   {"beside", [=] { return unmap_beside_us(bytes); }}});
  bench.note(
      "munmap: of touched, registered memory. arena: a mapping that it serves, which stays registered; the "
      "next one there "
      "begins with zeros. beside: the kernel's, around which the registration ends; device pin.");
}

// ---- forks ----

/// The parent's time of a fork while memory is as `Held` has it.
template <class Held>
double fork_ms(std::size_t bytes) {
  const Held held(bytes);
  const Ticks begin = ticks_now();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  const Ticks end = ticks_now();
  if (child < 0) throw Failure("fork: no memory");
  ::waitpid(child, nullptr, 0);
  return static_cast<double>(end - begin) * calibration().ns_per_tick / 1e6;
}

struct Unregistered {
  explicit Unregistered(std::size_t bytes) : buffer(bytes, false) { buffer.touch(); }
  Buffer buffer;
};

/// A transfer of it goes on.
struct UnderLease : Unregistered {
  explicit UnderLease(std::size_t bytes) : Unregistered(bytes) {
    constexpr std::size_t kMost = 256 * kMiB;
    leases.reserve(bytes / kMost + 1);
    for (Address at = buffer.range.begin; at < buffer.range.end; at += kMost)
      must(api.acquire({at, std::min(at + kMost, buffer.range.end)}, leases.emplace_back()));
  }
  ~UnderLease() {
    for (pinion_lease& lease : leases) pinion_release(&lease);
  }
  ApiDomain api{"retention=leave-pinned,monitor=brackets,device=pin"};
  std::vector<pinion_lease> leases;
};

struct InArena {
  explicit InArena(std::size_t bytes, bool under_lease = false) {
    constexpr std::size_t kBlock = 64 * kMiB;
    leases.reserve(bytes / kBlock + 1);
    for (std::size_t at = 0; at < bytes; at += kBlock) {
      const Buffer& block = *blocks.emplace_back(std::make_unique<Buffer>(kBlock, true));
      block.touch();
      if (under_lease)
        must(api.acquire(block.range, leases.emplace_back()));
      else
        api.use(block.range);
    }
  }
  ~InArena() {
    for (pinion_lease& lease : leases) pinion_release(&lease);
  }
  ApiDomain api{"retention=leave-pinned,monitor=brackets,device=pin"};
  std::vector<std::unique_ptr<Buffer>> blocks;
  std::vector<pinion_lease> leases;
};

struct InArenaUnderLease : InArena {
  explicit InArenaUnderLease(std::size_t bytes) : InArena(bytes, true) {}
};

void measure_forks(Bench& bench, const std::vector<std::size_t>& sizes) {
  for (const std::size_t bytes : sizes) {
    bench.compare("fork-" + size_name(bytes), "ms", "ms",
                  {{"pinion", [=] { return fork_ms<InArena>(bytes); }},
                   {"pinion-under-lease", [=] { return fork_ms<InArenaUnderLease>(bytes); }},
                   {"under-lease", [=] { return fork_ms<UnderLease>(bytes); }},
                   {"unregistered", [=] { return fork_ms<Unregistered>(bytes); }}});
    process_heap().relieve();
  }
  bench.note(
      "fork: the parent's time, device pin. pinion: blocks of a registered arena, which it deregisters; "
      "pinion-under-lease: transfers of them go on, and it copies them for the child; "
      "under-lease: memory registered beside the arena, which the kernel copies page by page; unregistered: "
      "copied "
      "on write.");
}

// ---- MPI_Allreduce ----

void measure_allreduce(Bench& bench) {
  const auto families = mpi_benches();
  if (families.empty()) return bench.note(kNoMpi);
  const MpiBench& mpi = families.front();
  const TemporaryLogDirectory directory;
  const std::string nic = "connectx";
  const auto under = [](const char* retention, const std::string& costs, CommandLine options = {}) {
    options.insert(options.end(), {"--device", "emulated", "--nic", costs, "--retention", retention});
    return under_pinion(options);
  };
  const std::pair<const char*, CommandLine> subjects[] = {
      {"none", {}},
      {"on-demand", under("on-demand", nic)},
      {"once", under("leave-pinned", nic)},
      {"once-hugepages", under("leave-pinned", nic, {"--hugepages"})},
      {"offloaded", under("leave-pinned", offloading_nic(directory))},
      {"arena", under("on-demand", nic, {"--preregister", "256M"})}};
  constexpr std::size_t kSubjects = std::size(subjects);
  std::map<std::string, std::map<std::string, std::vector<double>>> us;  // by size and subject
  for (std::size_t round = 0; round < bench.rounds(); ++round)
    for (std::size_t i = 0; i < kSubjects; ++i) {
      const auto& [subject, command] = subjects[(i + round) % kSubjects];
      for (const auto& [size, value] : run_mpi_bench(mpi, 2, command, {"new-buffers"}))
        us[size][subject].push_back(value / 1000);
    }
  for (const auto& [mib, paper] : kAllreduceSizes) {
    const std::string size = fmt::format("{}M", mib), name = fmt::format("allreduce-{}", size);
    std::vector<double> saved, saved_of_offloaded;
    for (std::size_t round = 0; round < bench.rounds(); ++round) {
      const auto of = [&](const char* subject) { return us[size][subject].at(round); };
      saved.push_back(100 * (1 - of("arena") / std::min({of("none"), of("on-demand"), of("once"),
                                                         of("once-hugepages")})));
      saved_of_offloaded.push_back(100 * (1 - of("arena") / of("offloaded")));
    }
    for (const auto& [subject, command] : subjects) bench.add(name, subject, "us", "us", us[size][subject]);
    bench.add(name, "arena", "saved", "%", saved);
    bench.add(name, "arena", "saved_of_offloaded", "%", saved_of_offloaded);
    bench.add(name, "paper", "saved", "%", {paper});
  }
  bench.note(fmt::format(
      "allreduce: the mean of a call on two ranks of {}, whose two touched buffers are new in each; device "
      "emulated, NIC connectx. none: without Pinion, which registers nothing; once: leave-pinned; offloaded: "
      "so, each call of the device 10 us longer; arena: the others on demand. saved: of the fastest of those "
      "but offloaded, in runs of one round. The paper: MVAPICH2 on 16 nodes.",
      mpi.family));
}

/// Saved against the cheapest way that registers in the program's time; and of the paper's own baseline.
void simulate_allreduce(Bench& bench) {
  for (const auto& [mib, paper] : kAllreduceSizes)
    for (const double gbps : {1.5, 3.0, 6.0, 12.0}) {
      const std::string name = fmt::format("allreduce-{}M-{}-nodes-{}GBps", mib, kAllreduceNodes, gbps);
      const auto us = [&](AllreduceMemory memory, double offload_ns = 0) {
        return simulated_allreduce_us(mib * kMiB, memory, gbps * 1e9, offload_ns);
      };
      const double on_demand = us(AllreduceMemory::on_demand), once = us(AllreduceMemory::once),
                   offloaded = us(AllreduceMemory::once, kOffloadNs), arena = us(AllreduceMemory::arena);
      bench.add(name, "none", "us", "us", {us(AllreduceMemory::unregistered)});
      bench.add(name, "on-demand", "us", "us", {on_demand});
      bench.add(name, "once", "us", "us", {once});
      bench.add(name, "offloaded", "us", "us", {offloaded});
      bench.add(name, "arena", "us", "us", {arena});
      bench.add(name, "arena", "saved", "%", {100 * (1 - arena / std::min(on_demand, once))});
      bench.add(name, "arena", "saved_of_offloaded", "%", {100 * (1 - arena / offloaded)});
      bench.add(name, "paper", "saved", "%", {paper});
    }
  bench.note(
      "allreduce of 16 nodes: simulated, a rank a node, NIC connectx, sums at 4 GB/s, Rabenseifner's "
      "algorithm; page faults are left out. none: registrations cost nothing; on-demand: one a message; "
      "once: each part of a new buffer at its first message; offloaded: so, and 10 us more each. saved: of "
      "the faster of on-demand and once.");
}

void run(Bench& bench) {
  std::vector<std::size_t> sizes = bench.options().sizes;
  if (sizes.empty()) sizes = {256 * kMiB};
  const std::size_t most = *std::max_element(sizes.begin(), sizes.end());
  if (!process_arena().reserve(most + 256 * kMiB, false)) return bench.note("no addresses for an arena");
  ::pthread_atfork([] { process_heap().before_fork(); }, [] { process_heap().after_fork_in_parent(); },
                   [] { process_heap().after_fork_in_child(); });
  measure_requests(bench);
  measure_unmapping(bench);
  const std::pair<const char*, std::function<void()>> parts[] = {
      {"allreduce", [&] { measure_allreduce(bench); }},
      {"the simulated allreduce", [&] { simulate_allreduce(bench); }},
      {"fork", [&] { measure_forks(bench, sizes); }}};
  for (const auto& [name, measure] : parts) {
    try {
      measure();
    } catch (const Failure& failure) {
      bench.note(fmt::format("{} was not measured: {}", name, failure.what()));
    }
  }
}

const BenchRegistration registration{"prereg", "Requests served by the pre-registered arena", run,
                                     kTakesSizes, 3};

}  // namespace

}  // namespace pinion::cli
