// `pinion bench firehose`: puts between processes of this node by libpinion-firehose, under each of its
// strategies; the paper's values beside them. The processes are those of the example `gas`, which checks its
// own answers.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/units.h"
#include "bench/bench.h"
#include "bench/firehose_hit.h"
#include "bench/mpi.h"
#include "cli/command.h"
#include "cli/system_files.h"

namespace pinion::cli {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSubjects[] = {"firehose",   "firehose-static",  "pin-everything",
                                     "rendezvous", "rendezvous-unpin", "bounce"};

/// Options of `gas`. firehose-static is the paper's own algorithm.
CommandLine strategy_of(const std::string& subject) {
  if (subject == "firehose-static")
    return {"--strategy", "firehose", "--sharing", "static", "--rides", "off"};
  return {"--strategy", subject};
}
bool is_firehose(const std::string& subject) { return subject.starts_with("firehose"); }

struct Metric {
  const char* name;
  const char* unit;
};
constexpr Metric kMetrics[] = {{"puts", "puts"},
                               {"seconds", "s"},
                               {"hit_rate", "share"},
                               {"misses", "misses"},
                               {"distinct_buckets", "buckets"},
                               {"latency_us", "us"},
                               {"p99_us", "us"},
                               {"hit_us", "us"},
                               {"miss_us", "us"},
                               {"miss_of_hit", "times"},
                               {"bookkeeping_ns", "ns a hit"},
                               {"moves", "firehoses"},
                               {"victim_hits", "firehoses"},
                               {"victim_share", "share of moves"},
                               {"move_us", "us"},
                               {"local_pins", "registrations"},
                               {"unpins", "buckets"},
                               {"pinned_bytes", "bytes"}};

constexpr const char* kPuts = "8000";

/// A client of `gas`, as the paper's tables run it.
struct Client {
  const char* name;
  const char* processes;
  const char* all_puts;  ///< with --full: the paper's, of strategy firehose
  bool beyond = false;   ///< its working set is larger than M
};
constexpr Client kClients[] = {{"cannon", "4", "1500000"},           {"bitonic", "4", "2100000"},
                               {"random-put", "2", "1000000"},       {"cannon-beyond", "4", kPuts, true},
                               {"bitonic-beyond", "4", kPuts, true}, {"random-put-beyond", "2", kPuts, true}};
/// Cannon has 32 buckets of a process put to, bitonic 32 by each of two peers, random-put 256.
constexpr const char* kBeyond[] = {"--memory", "64K", "--victims", "16K", "--bucket", "4K"};
/// The provider of the paper's counts; an operation of `sockets` takes milliseconds.
constexpr const char* kFirstProvider = "tcp;ofi_rxm";

/// firehose-2003, two nodes with Myrinet.
struct PaperValue {
  const char* name;
  const char* subject;
  const char* metric;
  const char* unit;
  double value;
};
constexpr PaperValue kPaper[] = {{"cannon", "paper-firehose", "puts", "puts", 1.5e6},
                                 {"cannon", "paper-firehose", "hit_rate", "share", 0.998},
                                 {"cannon", "paper-firehose", "hit_us", "us", 14},
                                 {"cannon", "paper-firehose", "miss_us", "us", 46},
                                 {"cannon", "paper-firehose", "miss_of_hit", "times", 46. / 14},
                                 {"cannon", "paper-firehose", "move_us", "us", 5},
                                 {"cannon", "paper-firehose", "unpins", "buckets", 0},
                                 {"cannon", "paper-firehose", "seconds", "s", 781},
                                 {"cannon", "paper-rendezvous", "latency_us", "us", 34},
                                 {"cannon", "paper-rendezvous", "seconds", "s", 797},
                                 {"cannon", "paper-rendezvous-unpin", "latency_us", "us", 5141},
                                 {"cannon", "paper-rendezvous-unpin", "seconds", "s", 5460},
                                 {"bitonic", "paper-firehose", "puts", "puts", 2.1e6},
                                 {"bitonic", "paper-firehose", "hit_rate", "share", 0.9998},
                                 {"bitonic", "paper-firehose", "hit_us", "us", 15},
                                 {"bitonic", "paper-firehose", "miss_us", "us", 54},
                                 {"bitonic", "paper-firehose", "miss_of_hit", "times", 54. / 15},
                                 {"bitonic", "paper-firehose", "move_us", "us", 14},
                                 {"bitonic", "paper-firehose", "unpins", "buckets", 0},
                                 {"bitonic", "paper-firehose", "seconds", "s", 255},
                                 {"bitonic", "paper-rendezvous", "latency_us", "us", 33},
                                 {"bitonic", "paper-rendezvous", "seconds", "s", 289},
                                 {"bitonic", "paper-rendezvous-unpin", "latency_us", "us", 522},
                                 {"bitonic", "paper-rendezvous-unpin", "seconds", "s", 4740}};

/// It is beside the other examples.
std::string program() {
  const fs::path path = installation() / "bin/examples/gas";
  if (::access(path.c_str(), X_OK) == 0) return path.string();
  throw Failure("bench firehose: its program `gas` is missing beside this command");
}

/// Values by case, subject and metric.
using Samples = std::map<std::string, std::map<std::string, std::map<std::string, std::vector<double>>>>;

class Measurement {
 public:
  Measurement(Bench& bench, std::string provider)
      : bench_(bench), provider_(std::move(provider)), program_(program()) {}

  void run() {
    const unsigned rounds = bench_.options().full ? 1 : std::max(1u, bench_.rounds() / 3);
    for (unsigned round = 0; round < rounds; ++round)
      for (const char* const subject : kSubjects) {
        bench_.step(fmt::format("{}, round {} of {}: {}", provider_, round + 1, rounds, subject));
        for (const Client& client : kClients) measure_client(subject, client);
        measure_working_sets(subject);
        measure_one_way(subject);
        if (round == 0) measure_full_memory(subject);
      }
    add_rows();
  }

 private:
  using Figures = std::map<std::string, double>;

  Figures figures(const std::string& subject, const CommandLine& client) {
    CommandLine command{program_};
    command.insert(command.end(), client.begin(), client.end());
    const CommandLine strategy = strategy_of(subject);
    command.insert(command.end(), strategy.begin(), strategy.end());
    command.insert(command.end(), {"--figures", "--provider", provider_});
    return run_for_figures(command);
  }
  /// Notes a failure once.
  template <class Once>
  void attempt(const std::string& subject, const std::string& name, const Once& once) {
    if (std::find(failed_.begin(), failed_.end(), subject + name) != failed_.end()) return;
    try {
      once();
    } catch (const Failure& failure) {
      failed_.push_back(subject + name);
      bench_.note(
          fmt::format("{}, {} over {} was not measured: {}", name, subject, provider_, failure.what()));
    }
  }

  void measure_client(const std::string& subject, const Client& client) {
    attempt(subject, client.name, [&] {
      const bool all = bench_.options().full && provider_ == kFirstProvider && is_firehose(subject);
      const std::string name = client.name;
      CommandLine command{name.substr(0, name.find("-beyond")), "--processes", client.processes, "--puts",
                          all ? client.all_puts : kPuts};
      if (client.beyond) command.insert(command.end(), std::begin(kBeyond), std::end(kBeyond));
      Figures seen = figures(subject, command);
      seen["miss_of_hit"] = seen["hit_us"] > 0 ? seen["miss_us"] / seen["hit_us"] : 0;
      for (const Metric& metric : kMetrics)
        if (is_measured(metric.name, seen))
          samples_[client.name][subject][metric.name].push_back(seen.at(metric.name));
    });
  }

  /// False for times of hits or misses if none occurred.
  static bool is_measured(const std::string& metric, const Figures& seen) {
    for (const char* const time : {"hit_us", "miss_us", "miss_of_hit", "move_us", "bookkeeping_ns"})
      if (metric == time) return seen.at(metric) > 0;
    return true;
  }

  /// The paper's curve: one process's part of M is 1 MiB.
  void measure_working_sets(const std::string& subject) {
    attempt(subject, "working sets", [&] {
      CommandLine client{"random-put", "--processes", "2",
                         "--memory",   "1M",          "--victims",
                         "128K",       "--puts",      bench_.options().full ? "10000" : "2000",
                         "--sets"};
      for (const std::size_t bytes : sets()) client.push_back(std::to_string(bytes));
      const Figures seen = figures(subject, client);
      for (const std::size_t bytes : sets())
        for (const char* const metric : {"latency_us", "p99_us", "hit_rate"})
          samples_[set_name(bytes)][subject][metric].push_back(
              seen.at(fmt::format("set-{}.{}", bytes, metric)));
    });
  }
  static std::string set_name(std::size_t bytes) { return "random-put-" + size_name(bytes); }
  std::vector<std::size_t> sets() const {
    std::vector<std::size_t> sizes;
    for (std::size_t bytes = 256 << 10; bytes <= std::size_t{8} << 20; bytes *= bench_.options().full ? 2 : 4)
      sizes.push_back(bytes);
    return sizes;
  }

  /// The paper's properties, as measured: one process puts, and the other one sleeps.
  void measure_one_way(const std::string& subject) {
    attempt(subject, "properties", [&] {
      const Figures seen =
          figures(subject, {"random-put", "--processes", "2", "--one-way", "--puts", "2000", "--sets", "1M"});
      auto& properties = samples_["properties"][subject];
      properties["remote_cpu_us"].push_back(seen.at("remote_cpu_us"));
      properties["copied_share"].push_back(seen.at("messaged") / seen.at("puts"));
      properties["handshakes"].push_back(seen.at("misses") / seen.at("puts"));
    });
  }
  /// Whether puts reach memory that no one named beforehand.
  void measure_full_memory(const std::string& subject) {
    double reached = 1;
    try {
      figures(subject, {"random-put", "--processes", "2", "--all-memory", "--puts", "100", "--sets", "64K"});
    } catch (const Failure&) {
      reached = 0;
    }
    samples_["properties"][subject]["full_memory"].push_back(reached);
  }

  void add_rows() {
    const auto add = [&](const std::string& name, const Metric& metric) {
      for (const char* const subject : kSubjects)
        bench_.add(name, subject, metric.name, metric.unit, samples_[name][subject][metric.name]);
    };
    for (const Client& client : kClients)
      for (const Metric& metric : kMetrics) {
        bench_.set_provider(provider_);
        add(client.name, metric);
        bench_.set_provider("Myrinet/GM");
        for (const PaperValue& paper : kPaper)
          if (paper.name == std::string(client.name) && paper.metric == std::string(metric.name))
            bench_.add(paper.name, paper.subject, paper.metric, paper.unit, {paper.value});
      }
    bench_.set_provider(provider_);
    for (const std::size_t bytes : sets())
      for (const Metric& metric : {Metric{"latency_us", "us"}, {"p99_us", "us"}, {"hit_rate", "share"}})
        add(set_name(bytes), metric);
    for (const Metric& metric : {Metric{"copied_share", "share"},
                                 {"remote_cpu_us", "us a put"},
                                 {"handshakes", "round trips a put"},
                                 {"full_memory", "1: yes"}})
      add("properties", metric);
  }

  Bench& bench_;
  const std::string provider_, program_;
  Samples samples_;
  std::vector<std::string> failed_;
};

void run(Bench& bench) {
  const BenchOptions& options = bench.options();
  if (options.wire_bytes_per_second > 0) throw UsageError("bench firehose has no --wire");
  std::vector<std::string> providers{options.provider.empty() ? kFirstProvider : options.provider};
  if (options.full && options.provider.empty()) providers = {"shm", kFirstProvider, "sockets"};
  measure_hits(bench);
  for (const std::string& provider : providers) Measurement(bench, provider).run();
  bench.note(fmt::format(
      "Providers of libfabric: {}. A sample is a run of all processes on this node, subjects by turns, a "
      "third "
      "of the rounds. Puts are of all processes and wait for delivery; cannon and bitonic put 1 KiB, "
      "random-put 8 bytes. pinned_bytes: the most that a process had registered for its peers. "
      "firehose-static: "
      "the paper's own algorithm, with equal shares for all peers, and without data riding on a miss. "
      "-beyond: M is 64 KiB, MAXVICTIM 16 KiB, buckets of 4 KiB, less than the working set.",
      fmt::join(providers, ", ")));
  bench.note(
      "hit-COUNT: the use of a firehose and its end, at random ones of so many that are held; beside a "
      "look-up "
      "in a hash table of so many entries, and two uncontended atomic pairs.");
  bench.note(
      "random-put-SIZE: words of SIZE bytes of each process, in random order, with M = 1 MiB and MAXVICTIM = "
      "128 KiB. properties: one process puts, the other one sleeps: its CPU a put (one-sided: its provider's "
      "alone), puts that were copied by message, round trips before the data, puts to memory outside of "
      "segments. paper-*: firehose-2003, two nodes with Myrinet, of 2003.");
}

const BenchRegistration registration{"firehose", "One-sided puts by each strategy of registration", run,
                                     kTakesNetwork, 3};

}  // namespace

}  // namespace pinion::cli
