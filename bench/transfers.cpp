// `pinion bench transfers`: messages between two processes of this node by each protocol and retention, with
// buffers that are used again and buffers that are used once, over a provider of libfabric. Beside them
// memory that is registered already, and MPI libraries.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/units.h"
#include "bench/bench.h"
#include "bench/mpi.h"
#include "bench/transfers_pair.h"
#include "cli/command.h"

namespace pinion::cli {

namespace {

struct Metric {
  const char* name;
  const char* unit;
};
constexpr Metric kMetrics[] = {{"latency_us", "us"},
                               {"learning_us", "us"},
                               {"bandwidth_MBps", "MB/s"},
                               {"cpu_us", "us a message"},
                               {"remote_cpu_us", "us a message"},
                               {"registered_peak_bytes", "bytes"},
                               {"registered_mean_bytes", "bytes"}};

std::vector<std::size_t> sizes(bool full) {
  // 17 KiB: just above the size from which Pinion manages a buffer, as in the paper's section 4.3.
  constexpr std::size_t kLeast = std::size_t{17} << 10;
  if (!full) return {kLeast, std::size_t{256} << 10, std::size_t{1} << 20, std::size_t{4} << 20};
  std::vector<std::size_t> all{kLeast};
  for (std::size_t bytes = 4096; bytes <= std::size_t{256} << 20; bytes *= 4) all.push_back(bytes);
  return all;
}

std::vector<TransferCase> cases_of(const BenchOptions& options) {
  std::vector<TransferCase> cases;
  for (const std::size_t bytes : options.sizes.empty() ? sizes(options.full) : options.sizes) {
    cases.push_back({bytes, true});
    // Buffers that are used once take their sum in memory, twice in each process.
    if (bytes <= std::size_t{16} << 20) cases.push_back({bytes, false});
  }
  return cases;
}

/// Values by case, metric and subject.
using Samples = std::map<std::string, std::map<std::string, std::map<std::string, std::vector<double>>>>;

void add_figures(Samples& samples, const std::string& subject,
                 const std::map<std::string, std::map<std::string, double>>& cases) {
  for (const auto& [name, figures] : cases)
    for (const auto& [metric, value] : figures) samples[name][metric][subject].push_back(value);
}

/// The program names cases by bytes: reuse-16384.latency_us.
std::map<std::string, std::map<std::string, double>> mpi_figures(const MpiBench& mpi,
                                                                 const std::vector<TransferCase>& cases) {
  CommandLine arguments{"transfers"};
  for (const TransferCase& one : cases)
    if (!one.reuse) arguments.push_back(std::to_string(one.bytes));
  const std::map<std::string, double> figures = run_mpi_bench(mpi, 2, {}, arguments);
  std::map<std::string, std::map<std::string, double>> by_case;
  for (const TransferCase& one : cases)
    for (const Metric& metric : kMetrics) {
      const std::string key =
          fmt::format("{}-{}.{}", one.reuse ? "reuse" : "no-reuse", one.bytes, metric.name);
      if (const auto found = figures.find(key); found != figures.end())
        by_case[name_of(one)][metric.name] = found->second;
    }
  return by_case;
}

void measure(Bench& bench, const TransferNetwork& network) {
  const auto cases = cases_of(bench.options());
  const unsigned rounds = std::max(1u, bench.rounds() / 3);
  Samples samples;
  std::string carried_by;
  std::vector<std::string> failed;
  const auto attempt = [&](const std::string& subject, const auto& once) {
    if (std::find(failed.begin(), failed.end(), subject) != failed.end()) return;
    bench.step(subject);
    try {
      once();
    } catch (const Failure& failure) {
      failed.push_back(subject);
      bench.note(fmt::format("{} was not measured: {}", subject, failure.what()));
    }
  };
  // MPI libraries have a wire of their own.
  const std::vector<MpiBench> families =
      network.wire_bytes_per_second > 0 || network.pause > 0 ? std::vector<MpiBench>{} : mpi_benches();
  for (unsigned round = 0; round < rounds; ++round) {
    for (const TransferSubject& subject : transfer_subjects()) {
      attempt(subject.name, [&] {
        const TransferFigures figures = measure_transfers(subject, network, cases);
        carried_by = figures.provider;
        add_figures(samples, subject.name, figures.cases);
      });
    }
    for (const MpiBench& mpi : families)
      attempt(mpi.family, [&] { add_figures(samples, mpi.family, mpi_figures(mpi, cases)); });
  }
  for (const TransferCase& one : cases)
    for (const Metric& metric : kMetrics)
      for (const auto& [subject, values] : samples[name_of(one)][metric.name]) {
        const bool mpi = std::any_of(families.begin(), families.end(),
                                     [&](const MpiBench& family) { return subject == family.family; });
        bench.set_provider(mpi ? "the library's own" : carried_by);
        bench.add(name_of(one), subject, metric.name, metric.unit, values);
      }
  bench.note(fmt::format("Provider: {}.", carried_by.empty() ? "none" : carried_by));
}

/// A wrong name ends the command before anything is measured.
void try_provider(const std::string& provider) {
  try {
    measure_transfers(transfer_subjects().front(), {provider}, {});
  } catch (const Failure& failure) {
    throw UsageError(fmt::format("bench transfers: {}", failure.what()));
  }
}

void run(Bench& bench) {
  const BenchOptions& options = bench.options();
  if (options.full && options.provider.empty() && options.wire_bytes_per_second == 0) {
    for (const char* provider : {"shm", "tcp;ofi_rxm", "sockets"})
      measure(bench, {provider, 0, options.pause});
  } else {
    if (!options.provider.empty()) try_provider(options.provider);
    measure(bench, {options.provider, options.wire_bytes_per_second, options.pause});
  }
  bench.note(
      "A sample is a run of two processes on this node, subjects by turns, a third of the rounds. "
      "learning_us: "
      "256 MiB, at most 1,000 messages. Registered bytes: the bounce pool included, seen at most every 20 "
      "us. "
      "no-reuse: each buffer carries one message.");
  if (options.pause > 0)
    bench.note(
        "With --pause messages go one at a time, one way: latency_us is that of the sender, three turns of "
        "the four buffers are for retention to learn.");
  bench.note(
      options.wire_bytes_per_second > 0
          ? "Emulated: the wire moves the data, then sleeps for as long as its bandwidth requires; "
            "registration "
            "lasts as modelled for NIC 'connectx'."
          : "Over a provider in software (shm, tcp, sockets) the wire is the processor: overlap gains "
            "nothing, "
            "and registering costs what pinning costs. openmpi, mpich: their own transport within the node.");
  bench.note(
      "everything-registered: puts of the same endpoint into memory that both sides registered beforehand. "
      "-thp, -hugetlb: the buffers lie on hugepages, transparent ones or those of the kernel's pool.");
}

const BenchRegistration registration{"transfers", "Large messages by each protocol and retention", run,
                                     kTakesNetwork | kTakesSizes | kTakesPause, 3};

}  // namespace

}  // namespace pinion::cli
