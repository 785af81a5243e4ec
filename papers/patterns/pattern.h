// Communication patterns of programs that need not be at hand: written down from their published
// decompositions, as programs for the simulator. Values.
//
// A pattern lists the messages that can reach the threshold for some class and number of ranks; scalars and
// set-up are left out. Messages to ranks of the same node, and to the rank itself, are never registered:
// libraries pass those through shared memory. Below the threshold neither: a library sends them at once, and
// the sender waits for nobody. Every other message begins when both of its ranks have come to it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "papers/patterns/coupling.h"
#include "simulate/placement.h"
#include "simulate/program.h"
#include "simulate/workload.h"

namespace pinion::simulate {

/// The speed of the imaginary machine: the time scale of computation and transfers. The defaults have the
/// order of the paper's machine: a core that does 1 Gflop/s in such codes, a network of 1.5 GB/s.
struct Machine {
  double flops = 1e9;
  double network_bytes_per_second = 1.5e9;
  double memory_bytes_per_second = 4e9;
  Duration latency = 2 * kMicrosecond;
  std::uint64_t threshold = 16 << 10;
};

/// A message of one rank, as its program passes it to MPI.
struct Message {
  enum class Part : std::uint8_t { before, turn } part;
  CallKind call;
  Address address;
  std::uint64_t bytes;
  int peer;
  std::uint64_t site;
};

/// Writes the program of one rank, call by call. A class that wants the calls themselves overrides them
/// (examples/play).
class ProgramBuilder {
 public:
  ProgramBuilder(int rank, const Placement& placement, const Machine& machine)
      : rank_(rank), placement_(placement), machine_(machine) {}
  virtual ~ProgramBuilder() = default;

  int rank() const { return rank_; }
  int ranks() const { return placement_.ranks(); }

  /// A buffer of the program, at a page of its own.
  virtual Address array(std::uint64_t bytes);

  /// Floating-point operations, or a time, of this rank.
  void compute(double flops) { pause(static_cast<Duration>(flops / machine_.flops * 1e9)); }
  virtual void pause(Duration time) { compute_ += time; }

  /// Begins a message.
  virtual void post(CallKind call, Address address, std::uint64_t bytes, int peer, std::uint64_t site);
  /// All messages under way are complete.
  virtual void wait();
  /// A call that returns when its message is complete, as those that were posted before it.
  void blocking(CallKind call, Address address, std::uint64_t bytes, int peer, std::uint64_t site) {
    post(call, address, bytes, peer, site);
    wait();
  }
  /// Each of `peers` (this rank among them) gets its piece of `send`, and sends one to `receive`.
  virtual void alltoall(Address send, Address receive, std::uint64_t piece, const std::vector<int>& peers,
                        std::uint64_t site);
  virtual void unmap(Range range);

  /// Operations written before this come before the main loop.
  virtual void begin_turn();
  /// Operations written since begin_turn() are one of so many turns.
  virtual void end_turn(std::uint64_t turns);

  Program finish();
  const std::vector<Message>& messages() const { return messages_; }
  /// Whom the rank waits for; after finish().
  RankMessages take_coupling() { return std::move(coupling_); }

 private:
  void add(Operation operation);
  /// The last operation, or a new one, begins a message that peers wait for.
  void begin(RankMessage message);
  std::uint32_t group(const std::vector<int>& peers);
  void lease(CallKind call, Address address, std::uint64_t bytes, std::uint64_t site);
  /// A partner beyond the last rank is somewhere else.
  bool off_node(int peer) const {
    return peer >= ranks() || (peer != rank_ && !placement_.same_node(peer, rank_));
  }

  const int rank_;
  const Placement& placement_;
  const Machine& machine_;
  ThreadProgram program_;
  std::vector<Operation>* part_ = &program_.before;
  std::vector<Message> messages_;
  RankMessages coupling_;
  bool under_way_ = false;  ///< messages that peers wait for
  Address next_array_ = Address{1} << 40;
  Duration compute_ = 0, transfer_ = 0;
  std::uint32_t leases_ = 0;  ///< under way
  std::uint64_t sent_ = 0, received_ = 0, copied_ = 0;
};

struct Pattern {
  std::string name;  ///< as given: "ft:D:2x16"
  int ranks = 0;
  std::uint64_t turns = 0;  ///< of the main loop
  /// Writes the program of `builder.rank()`.
  std::function<void(ProgramBuilder& builder, std::uint64_t turns)> write;
};

/// NAME:CLASS:RANKS of a NAS benchmark (ft: RANKS may be ROWSxCOLUMNS, its 2-D layout), or NAME:SIZE:RANKS of
/// a synthetic one. The error names the valid names, classes, or numbers of ranks.
Error find_pattern(const std::string& text, Pattern& pattern);

/// `turns`: of the main loop; 0: as the pattern has it.
Workload pattern_workload(const Pattern& pattern, std::uint64_t turns, Placement placement,
                          const Machine& machine);

struct PatternName {
  const char* name;
  const char* text;  ///< one line
};
std::vector<PatternName> pattern_names();

}  // namespace pinion::simulate
