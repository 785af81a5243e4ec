// `pinion bench acquire`: an acquire and its release as a front makes them, hot: by the C API, and by the MPI
// front (in the program cli/bench/programs/p2p.cpp). Beside them the sum of their parts, each measured by
// itself: two time stamps, the signature, the record, and the hit with its release.
#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "cli/bench/api.h"
#include "cli/bench/bench.h"
#include "cli/bench/mpi.h"
#include "cli/bench/parts.h"

namespace pinion::cli {

namespace {

constexpr std::size_t kSteps = 100'000;
/// Nothing is let go, and nothing beside the calls is at work.
constexpr const char* kOptions = "retention=leave-pinned,device=pin,monitor=brackets";

/// Every range is registered.
class RegisteredRanges {
 public:
  explicit RegisteredRanges(const std::vector<Range>& ranges) {
    for (const Range& range : ranges) {
      std::memset(reinterpret_cast<void*>(range.begin), 1, range.bytes());
      api_.use(range);
    }
  }
  double ns(const std::vector<Range>& ranges, const std::vector<std::uint32_t>& order) const {
    int failed = 0;
    const double ns = best_ns_a_step(order.size(), [&](std::size_t i) {
      pinion_lease lease;
      failed |= api_.acquire(ranges[order[i]], lease);
      failed |= pinion_release(&lease);
    });
    if (failed) throw Failure("an acquire failed");
    return ns;
  }

 private:
  ApiDomain api_{kOptions};
};

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

void by_c_api(Bench& bench, const char* name, std::size_t count) {
  const BenchRanges memory(count);
  const auto order = BenchRanges::order(count, kSteps, 1);
  Parts parts(memory.ranges, order);
  const RegisteredRanges api(memory.ranges);
  std::vector<BenchSubject> subjects{
      {"pinion", [&] { return at_depth(kBenchDepth, [&] { return api.ns(memory.ranges, order); }); }},
      {"sum-of-parts", [&] { return parts.sum_ns(); }}};
  if (count == 1) subjects.push_back({"atomic-pair", [] { return atomic_pair_ns(kSteps); }});
  bench.compare(name, "ns", "ns", subjects);
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
      "An acquire of 64 KiB that hits, and its release. sum-of-parts: two time stamps, the signature, the "
      "record and the hit with its release, each measured by itself. A sample is the best of 40 batches.");
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"c-api-hot", [&] { by_c_api(bench, "c-api-hot", 1); }},
      {"c-api-1k", [&] { by_c_api(bench, "c-api-1k", 1 << 10); }},
      {"mpi-front-hot", [&] { by_mpi_front(bench); }}};
  for (const auto& [name, measure] : cases) {
    try {
      measure();
    } catch (const Failure& failure) {
      bench.note(fmt::format("{} was not measured: {}", name, failure.what()));
    }
  }
}

const BenchRegistration registration{"acquire", "An acquire and its release as a front makes them", run};

}  // namespace

}  // namespace pinion::cli
