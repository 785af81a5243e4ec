#include "simulate/simulation.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "runlog/process_figures.h"
#include "simulate/node.h"

namespace pinion::simulate {

namespace {

/// A kind of node, and how many there are of it.
struct NodeKind {
  Node members;
  int ranks = 0;
  std::uint64_t count = 0;
};

/// Nodes of the same kind have as many ranks of each kind.
std::vector<NodeKind> node_kinds(const Workload& workload, const RankKinds& kinds) {
  std::map<std::map<std::uint32_t, std::uint64_t>, std::size_t> numbers;
  std::vector<NodeKind> nodes;
  for (int number = 0; number < workload.placement.nodes(); ++number) {
    const std::vector<int>& there = workload.placement.ranks_of(number);
    std::map<std::uint32_t, std::uint64_t> ranks;
    for (const int rank : there) ++ranks[kinds.of_rank[static_cast<std::size_t>(rank)]];
    const auto [at, is_new] = numbers.try_emplace(ranks, nodes.size());
    if (is_new) {
      NodeKind& node = nodes.emplace_back();
      node.ranks = static_cast<int>(there.size());
      for (const int rank : there)
        if (const auto of = ranks.extract(kinds.of_rank[static_cast<std::size_t>(rank)]))
          node.members.push_back({static_cast<std::uint32_t>(rank), of.mapped()});
    }
    ++nodes[at->second].count;
  }
  return nodes;
}

/// Nodes without messages to each other are simulated side by side on the machine's cores.
std::vector<NodeResult> results_of(const Workload& workload, const Settings& settings, const RankKinds& kinds,
                                   const std::vector<NodeKind>& nodes) {
  if (workload.coupled) {
    std::vector<Node> all;
    for (const NodeKind& node : nodes) all.push_back(node.members);
    return simulate_nodes(workload, settings, kinds, all);
  }
  std::vector<NodeResult> results(nodes.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; (i = next.fetch_add(1)) < nodes.size();)
      results[i] = std::move(simulate_nodes(workload, settings, kinds, {nodes[i].members}).front());
  };
  std::vector<std::thread> others;
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  for (std::size_t i = 1; i < std::min(cores, nodes.size()); ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  return results;
}

double seconds(double ns) { return ns * 1e-9; }

/// Adds the times of all ranks as means over them.
void add_times(Result& result, const runlog::Counters& sum, double bookkeeping_ns) {
  const auto mean = [&](auto ns) { return seconds(static_cast<double>(ns)) / result.ranks; };
  result.cost.on_demand = mean(sum.registration_ns);
  result.cost.waits = mean(sum.wait_ns);
  result.cost.bounce = mean(sum.bounce_ns);
  result.cost.bookkeeping = mean(static_cast<double>(result.acquires.total) * bookkeeping_ns);
  result.cost.helper_cpu = mean(sum.helper_cpu_ns);
  result.cost.helper_charged = mean(sum.helper_charged_ns);
  // Every strategy keeps the same books, leave-pinned too.
  result.cost.leave_pinned = mean(sum.leave_pinned_registration_ns) + result.cost.bookkeeping;
  result.budget = runlog::budget_of(sum, result.ranks);
}

}  // namespace

bool is_predictor(const std::string& name) {
  return name == "oracle" || name == "schedule" || make_predictor(name, 0, 1) != nullptr;
}

Result simulate(const Workload& workload, const Settings& settings) {
  return simulate(workload, settings, kinds_of(workload, settings));
}

Result simulate(const Workload& workload, const Settings& settings, const RankKinds& kinds) {
  const std::vector<NodeKind> nodes = node_kinds(workload, kinds);
  const std::vector<NodeResult> results = results_of(workload, settings, kinds, nodes);
  Result result;
  if (settings.keep_profiles) result.profiles.resize(workload.programs.size());
  runlog::Counters sum{};
  result.kept_all_below_bytes = UINT64_MAX;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::uint64_t count = nodes[i].count;
    const NodeResult& node = results[i];
    add(sum, node.counters, count);
    result.kept_all_below_bytes = std::min(result.kept_all_below_bytes, node.kept_all_below_bytes);
    for (const auto& [program, profile] : node.profiles)
      if (result.profiles[program].empty()) result.profiles[program] = profile;
    result.ranks += static_cast<int>(count) * nodes[i].ranks;
    result.ranks_simulated += node.ranks_simulated;
    result.nodes += static_cast<int>(count);
    result.events += count * node.events;
    result.events_simulated += node.events_simulated;
    result.seconds = std::max(result.seconds, seconds(static_cast<double>(node.length)));
    result.seconds_at_end = std::max(result.seconds_at_end, seconds(static_cast<double>(node.at_end)));
    if (i != 0 && node.registered.peak <= result.registered.peak) continue;
    result.registered = node.registered;
    result.timeline = node.timeline;
  }
  result.nodes_simulated = static_cast<int>(nodes.size());
  result.acquires = runlog::acquires_of(sum);
  result.registrations = sum.registrations;
  result.deregistrations = sum.deregistrations;

  add_times(result, sum, workload.bookkeeping_ns);
  if (settings.retention == RetentionKind::leave_pinned && settings.limit == 0 && settings.node_limit == 0)
    result.cost.leave_pinned = result.cost.registration() + result.cost.bookkeeping +
                               result.cost.helper_charged;  // all its time is its own
  result.prediction = runlog::prediction_of(sum);
  return result;
}

}  // namespace pinion::simulate
