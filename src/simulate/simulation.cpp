#include "simulate/simulation.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "runlog/process_figures.h"
#include "simulate/node.h"

namespace pinion::simulate {

namespace {

using Node = std::vector<Member>;

/// Each kind of node with the number of nodes that are of it.
std::map<Node, std::uint64_t> nodes_of(const Workload& workload, const Settings& settings) {
  const bool alike = settings.noise.kind == NoiseModel::Kind::none;
  std::map<Node, std::uint64_t> nodes;
  for (int number = 0; number < workload.placement.nodes(); ++number) {
    std::map<Member, std::uint64_t> members;
    for (const int rank : workload.placement.ranks_of(number)) {
      const auto index = static_cast<std::size_t>(rank);
      const Workload::Rank& of = workload.ranks[index];
      const std::uint64_t seed = alike ? 0 : seed_of(settings.seed, index);
      ++members[{of.program, of.starts, seed, 0}];
    }
    Node node;
    for (const auto& [member, count] : members) {
      node.push_back(member);
      node.back().ranks = count;
    }
    ++nodes[node];
  }
  return nodes;
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
  const std::map<Node, std::uint64_t> nodes = nodes_of(workload, settings);
  std::vector<const Node*> kinds;
  for (const auto& [node, count] : nodes) kinds.push_back(&node);
  std::vector<NodeResult> results(kinds.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; (i = next.fetch_add(1)) < kinds.size();)
      results[i] = simulate_node(workload, settings, *kinds[i]);
  };
  std::vector<std::thread> others;
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  for (std::size_t i = 1; i < std::min(cores, kinds.size()); ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();

  Result result;
  if (settings.keep_profiles) result.profiles.resize(workload.programs.size());
  runlog::Counters sum{};
  result.kept_all_below_bytes = UINT64_MAX;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const std::uint64_t count = nodes.at(*kinds[i]);
    const NodeResult& node = results[i];
    const runlog::Counters& c = node.counters;
    std::uint64_t ranks = 0;
    for (const Member& member : *kinds[i]) ranks += member.ranks;
    add(sum, c, count);
    result.kept_all_below_bytes = std::min(result.kept_all_below_bytes, node.kept_all_below_bytes);
    for (const auto& [program, profile] : node.profiles)
      if (result.profiles[program].empty()) result.profiles[program] = profile;
    result.ranks += static_cast<int>(count * ranks);
    result.ranks_simulated += node.ranks_simulated;
    result.nodes += static_cast<int>(count);
    result.events += count * node.events;
    result.events_simulated += node.events_simulated;
    result.seconds = std::max(result.seconds, seconds(static_cast<double>(node.length)));
    if (i != 0 && node.registered.peak <= result.registered.peak) continue;
    result.registered = node.registered;
    result.timeline = node.timeline;
  }
  result.nodes_simulated = static_cast<int>(kinds.size());
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
