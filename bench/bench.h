// The common part of `pinion bench`: benches register themselves, measure their subjects in interleaved
// rounds, and hand in rows; the command prints them as a table or as JSON. Registration happens before
// main(); the rest is single-threaded.
//
//   // bench_hit.cpp
//   void run(Bench& bench) {
//     bench.compare("one-hot-range", "ns", "ns", {{"pinion", [&] { return hit_ns(); }}, {"ucx", ...}});
//   }
//   const BenchRegistration registration{"hit", "hit and release of a registered range", run};
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/progress.h"

namespace pinion::cli {

struct BenchRow {
  std::string name;      ///< of the case
  std::string provider;  ///< of libfabric, or the emulated wire, that carried it; empty: none did
  std::string subject;   ///< `pinion`, a peer or a floor
  std::string metric;
  std::string unit;
  double value = 0;  ///< median
  double least = 0, most = 0;
  double low = 0, high = 0;  ///< 95 % confidence interval of the median
  std::size_t samples = 0;
};

/// One way to do the work of a case. `measure` does it once, for as long as one sample takes, and returns
/// the figure.
struct BenchSubject {
  std::string name;
  std::function<double()> measure;
};

/// The user's arguments.
struct BenchOptions {
  unsigned rounds = 0;               ///< 0: the bench's own
  std::string device;                ///< empty: the bench chooses
  std::string provider;              ///< of libfabric; empty: the bench chooses
  bool full = false;                 ///< all that it can measure, however long it takes
  double wire_bytes_per_second = 0;  ///< of an emulated wire in place of a provider; 0: none
  std::vector<std::size_t> sizes;    ///< in place of the bench's own
  Duration pause = 0;                ///< after each message, as for a computation
};

class Bench {
 public:
  Bench(const std::string& name, BenchOptions options)
      : options_(std::move(options)), progress_("pinion bench " + name) {}

  unsigned rounds() const { return options_.rounds; }
  const std::string& device() const { return options_.device; }
  const BenchOptions& options() const { return options_; }
  /// Rows added from now on were carried by this provider.
  void set_provider(const std::string& provider) { provider_ = provider; }

  /// Measures every subject once a round, after one round that is thrown away, and adds a row each.
  void compare(const std::string& name, const std::string& metric, const std::string& unit,
               const std::vector<BenchSubject>& subjects);
  /// Adds a row of samples that were taken in another way.
  void add(const std::string& name, const std::string& subject, const std::string& metric,
           const std::string& unit, std::vector<double> samples);
  /// Shows the user the measurement that begins, for as long as it takes.
  void step(const std::string& what) { progress_.step(what); }
  void end_steps() { progress_.clear(); }
  /// A line below the table: the peers, and the reason for an absent one.
  void note(std::string text) { notes_.push_back(std::move(text)); }

  const std::vector<BenchRow>& rows() const { return rows_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  BenchOptions options_;
  Progress progress_;
  std::string provider_;
  std::vector<BenchRow> rows_;
  std::vector<std::string> notes_;
};

/// The options that a bench has, beside --rounds: kTakes... added up.
enum BenchTakes : unsigned {
  kTakesNothing = 0,
  kTakesDevice = 1,
  kTakesNetwork = 2,
  kTakesSizes = 4,
  kTakesPause = 8,
  kTakesFull = 16  ///< as those with kTakesNetwork
};

/// A power of 2^10 and its count, as cases are named: 17K, 4M, 8G.
std::string size_name(std::size_t bytes);

struct BenchRegistration {
  /// `rounds`: as many as end within a minute, nine at most.
  BenchRegistration(const char* name, const char* text, void (*run)(Bench&), unsigned takes = kTakesNothing,
                    unsigned rounds = 9);
};

/// Each bench and its subject, by name.
std::vector<std::pair<std::string, std::string>> bench_names();

/// Adds `bench` with its options.
void add_benches(CLI::App& app);

}  // namespace pinion::cli
