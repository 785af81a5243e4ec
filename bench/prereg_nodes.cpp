#include "bench/prereg_nodes.h"

#include "cli/command.h"
#include "device/model/cost_model.h"
#include "papers/patterns/pattern.h"
#include "placement/arena.h"
#include "simulate/simulation.h"

namespace pinion::cli {

namespace {

using simulate::ProgramBuilder;

constexpr std::uint64_t kCalls = 100;

/// Rabenseifner's algorithm, which MPI libraries choose for large messages: halves go to ever nearer partners
/// and are added up there; then the sums come back the same way.
void allreduce(ProgramBuilder& builder, Address sums, Address incoming, std::uint64_t bytes,
               const simulate::Machine& machine) {
  const auto exchange = [&](Address from, Address to, std::uint64_t part, int partner) {
    builder.post(CallKind::receive_nonblocking, to, part, partner, 1);
    builder.post(CallKind::send, from, part, partner, 2);
    builder.wait();
  };
  Address own = sums;
  std::uint64_t part = bytes / 2;
  for (int distance = builder.ranks() / 2; distance > 0; distance /= 2, part /= 2) {
    const bool upper = (builder.rank() & distance) != 0;
    exchange(upper ? own : own + part, incoming, part, builder.rank() ^ distance);
    if (upper) own += part;
    builder.pause(static_cast<Duration>(1e9 * static_cast<double>(part) / machine.memory_bytes_per_second));
  }
  for (int distance = 1; distance < builder.ranks(); distance *= 2) {
    part *= 2;
    const bool upper = (builder.rank() & distance) != 0;
    const Address others = upper ? own - part : own + part;
    exchange(own, others, part, builder.rank() ^ distance);
    if (upper) own = others;
  }
}

}  // namespace

double simulated_allreduce_us(std::uint64_t bytes, AllreduceMemory memory, double network_bytes_per_second,
                              double offload_ns) {
  simulate::Machine machine;
  machine.network_bytes_per_second = network_bytes_per_second;
  const bool in_arena = memory == AllreduceMemory::arena;
  simulate::Pattern pattern;
  pattern.ranks = kAllreduceNodes;
  pattern.turns = kCalls;
  pattern.write = [&](ProgramBuilder& builder, std::uint64_t calls) {
    constexpr std::size_t kSegment = std::size_t{32} << 20;
    const Address segment = builder.array(kSegment);
    if (in_arena)  // its one registration, for nobody
      builder.blocking(CallKind::receive, segment, kSegment, builder.ranks(), 3);
    builder.begin_turn();
    allreduce(builder, segment, segment + bytes, bytes, machine);
    if (!in_arena) builder.unmap({segment, segment + 2 * bytes});
    builder.end_turn(calls);
  };
  simulate::Placement placement;
  if (const Error error = simulate::Placement::make(kAllreduceNodes, 1, "packed", placement))
    throw Failure(error.message);
  simulate::Settings settings;
  settings.retention =
      memory == AllreduceMemory::on_demand ? RetentionKind::on_demand : RetentionKind::leave_pinned;
  if (memory != AllreduceMemory::unregistered) {
    CostModel& nic = settings.nic.emplace(load_cost_model("connectx").model);
    nic.register_ns_base += offload_ns;
    nic.deregister_ns_base += offload_ns;
  }
  settings.cores = 8;
  const auto seconds = [&](std::uint64_t calls) {
    return simulate::simulate(simulate::pattern_workload(pattern, calls, placement, machine), settings)
        .seconds;
  };
  // The segment's registration and the start are in both.
  return 1e6 * (seconds(2 * kCalls) - seconds(kCalls)) / static_cast<double>(kCalls);
}

}  // namespace pinion::cli
