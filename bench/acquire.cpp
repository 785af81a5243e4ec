// `pinion bench acquire`: an acquire and its release as programs make them, which hit: by the C API beside
// other caches, over one range, 1 K, 64 K and 1 M ranges, and by several threads; and by the MPI front (in
// the program bench/programs/p2p.cpp), beside the sum of its parts, each measured by itself: two time
// stamps, the signature, the record, and the hit with its release.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <thread>

#include "bench/acquire_subjects.h"
#include "bench/bench.h"
#include "bench/mpi.h"
#include "bench/parts.h"
#include "cli/system_files.h"

namespace pinion::cli {

namespace {

constexpr std::size_t kSteps = 100'000;
/// The record alone: filled in and handed over. The helper's part goes untimed.
double record_ns() {
  using Records = Ring<Record, 256>;
  static const auto ring = std::make_unique<Records>();
  constexpr std::size_t kBatch = Records::capacity() / 4;
  double best = 0;
  for (std::size_t done = 0; done < kSteps; done += kBatch) {
    const double ns = ns_a_step(kBatch, [&](std::size_t i) {
      Record record;
      record.begin = record.end = record.address = i;
      ring->push(record);
    });
    best = done == 0 ? ns : std::min(best, ns);
    for (Record record; ring->pop(record);) {
    }
  }
  return best;
}

/// All parts of an acquire and its release over these ranges.
class Parts {
 public:
  Parts(const std::vector<Range>& ranges, const std::vector<std::uint32_t>& order)
      : ranges_(ranges), order_(order) {
    own_.register_all(ranges);
  }
  double sum_ns() {
    return 2 * time_stamp_ns(kSteps) + record_ns() + hit_ns() +
           at_depth(kBenchDepth, [] { return signature_ns(kSteps); });
  }

 private:
  double hit_ns() {
    return best_ns_a_step(order_.size(), [&](std::size_t i) {
      own_.domain.release(own_.domain.try_hit(ranges_[order_[i]], Access::write, recent_));
    });
  }

  const std::vector<Range>& ranges_;
  const std::vector<std::uint32_t>& order_;
  BenchDomain own_;
  RecentRegions recent_;
};

using Layout = BenchRanges::Layout;

struct Peer {
  std::string name;
  OpenPeer open;
  std::size_t most_ranges;
};

/// The time of a look-up there grows with the ranges: 1.3 us for 1 K of them, 6 us for 4 K.
constexpr std::size_t kMostOfOpenMpi = 1 << 10;

/// Finds those that are here; notes each other one.
std::vector<Peer> peers_here(Bench& bench) {
  std::vector<Peer> here;
  for (const Peer& peer :
       {Peer{"ucx", [](bool, std::string&reason) { return open_ucx_cache(reason); }, SIZE_MAX},
        Peer{"open-mpi", [](bool threads, std::string&reason) { return open_grdma_cache(threads, reason); },
             kMostOfOpenMpi}}) {
    std::string reason;
    if (has_peer(peer.open, reason))
      here.push_back(peer);
    else
      bench.note(peer.name + " was not measured: " + reason);
  }
  return here;
}

struct ByCApi {
  Bench& bench;
  std::vector<Peer> peers;

  /// UCX, where it is there, is the first: the others stand beside it. `settles`: the ranges are so few that
  /// retention helper keeps them.
  void compare(const std::string& name, const AcquireWork& work, bool settles) const {
    std::vector<BenchSubject> subjects;
    for (const Peer& peer : peers)
      if (work.ranges.size() <= peer.most_ranges)
        subjects.push_back({peer.name, [&] { return get_and_put_ns(peer.open, work); }});
    if (settles) {
      subjects.push_back({"pinion", [&] { return c_api_ns(work, "helper", false); }});
      subjects.push_back({"pinion-log", [&] { return c_api_ns(work, "helper", true); }});
    }
    subjects.push_back({"pinion-leave-pinned", [&] { return c_api_ns(work, "leave-pinned", false); }});
    subjects.push_back({"hash", [&] { return hash_ns(work); }});
    if (work.ranges.size() == 1 && work.orders.size() == 1)
      subjects.push_back({"atomic-pair", [] { return atomic_pair_ns(kSteps); }});
    bench.compare(name, "ns", "ns", subjects);
  }
  void random(const std::string& name, std::size_t count, Layout layout, bool settles) const {
    const BenchRanges memory(count, layout);
    compare(name, {memory.ranges, {BenchRanges::order(count, kSteps, 1)}}, settles);
  }
  /// Threads with a range each, or with one in common.
  void by_threads(const std::string& name, std::size_t threads, bool shared, Layout layout) const {
    const BenchRanges memory(shared ? 1 : threads, layout);
    AcquireWork work{memory.ranges, {}};
    for (std::size_t who = 0; who < threads; ++who)
      work.orders.emplace_back(kSteps, shared ? 0 : static_cast<std::uint32_t>(who));
    compare(name, work, true);
  }
};

/// Both caches keep some 300 bytes for each of a million ranges, in turn.
bool has_memory_for_a_million() {
  constexpr std::size_t kNeeded = std::size_t{4} << 30;
  return std::strtoull(field_of("/proc/meminfo", "MemAvailable").c_str(), nullptr, 10) << 10 >= kNeeded;
}

void by_c_api(Bench& bench) {
  const ByCApi cases{bench, peers_here(bench)};
  for (const Layout layout : {Layout::aligned, Layout::real}) {
    const std::string end = layout == Layout::real ? "-real" : "";
    cases.random("c-api-hot" + end, 1, layout, true);
    cases.random("c-api-1k" + end, 1 << 10, layout, true);
    if (layout == Layout::aligned || bench.options().full)
      cases.random("c-api-64k" + end, 1 << 16, layout, false);
    const bool has_memory = has_memory_for_a_million();
    if (bench.options().full && has_memory) cases.random("c-api-1m" + end, 1 << 20, layout, false);
    if (bench.options().full && !has_memory)
      bench.note("c-api-1m" + end + " was not measured: less than 4 GiB of memory are available");
    for (std::size_t threads = 1; threads <= std::thread::hardware_concurrency(); threads *= 2) {
      cases.by_threads(fmt::format("own-{}{}", threads, end), threads, false, layout);
      cases.by_threads(fmt::format("shared-{}{}", threads, end), threads, true, layout);
    }
  }
  if (!bench.options().full) bench.note("c-api-1m and c-api-64k-real take minutes: --full has them.");
  bench.note("libfabric's cache is inside of its providers: without a NIC's, it is not measured here.");
}

/// The call's own time is that of a run without Pinion, by turns.
void by_mpi_front(Bench& bench) {
  const auto families = mpi_benches();
  if (families.empty()) return bench.note(kNoMpi);
  const MpiBench& mpi = families.front();
  const BenchRanges memory(1);
  const auto order = BenchRanges::order(1, kSteps, 1);
  Parts parts(memory.ranges, order);
  const auto call_ns = [&](const CommandLine& under) {
    return run_mpi_bench(mpi, 1, under, {"40", "5000", "allreduce"}).at("allreduce");
  };
  const CommandLine pinion = under_pinion({"--retention", "leave-pinned", "--device", "pin"});
  bench.compare("mpi-front-hot", "ns", "ns",
                {{"pinion", [&] { return call_ns(pinion) - call_ns({}); }},
                 {"sum-of-parts", [&] { return parts.sum_ns(); }}});
  bench.note(fmt::format(
      "mpi-front-hot: what MPI_Allreduce of 64 KiB in place on MPI_COMM_SELF takes longer with Pinion ({}).",
      mpi.family));
}

void run(Bench& bench) {
  bench.note(
      "An acquire of 64 KiB that hits, and its release; of 32 to 64 KiB at odd addresses in the cases -real. "
      "pinion: retention helper without a log, its ranges settled; ucx: ucs_rcache_get and put; open-mpi: "
      "rcache_register and deregister of its component grdma; hash: the "
      "look-up in std::unordered_map alone. Driver calls are empty. A sample is the best of 40 batches, "
      "beside "
      "other threads the mean.");
  const std::pair<const char*, void (*)(Bench&)> parts[] = {{"the C API", by_c_api},
                                                            {"mpi-front-hot", by_mpi_front}};
  for (const auto& [name, measure] : parts) {
    try {
      measure(bench);
    } catch (const Failure& failure) {
      bench.note(fmt::format("{} was not measured: {}", name, failure.what()));
    }
  }
}

const BenchRegistration registration{"acquire", "An acquire and its release as programs make them", run,
                                     kTakesFull, 2};

}  // namespace

}  // namespace pinion::cli
