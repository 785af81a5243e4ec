#include "simulate/node.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <queue>
#include <utility>

#include "base/assert.h"
#include "simulate/node_terms.h"
#include "simulate/peers.h"
#include "simulate/simulated_rank.h"

namespace pinion::simulate {

namespace {

std::uint64_t ranks_on(const Node& node) {
  std::uint64_t ranks = 0;
  for (const Member& member : node) ranks += member.ranks;
  return ranks;
}

/// A node while it runs.
struct RunningNode {
  RunningNode(const Settings& settings, const Node& node)
      : ranks(ranks_on(node)), helpers(settings, ranks), limit(settings, ranks) {
    levels.keeps_timeline = settings.keep_timeline;
  }
  const std::uint64_t ranks;
  Helpers helpers;
  NodeLimit limit;
  Levels levels;
  NodeResult result;
  Time end = kStart;
};

/// The processes whose next event is to come, the earliest first.
class TimeLine {
 public:
  void put(std::size_t process, Time next_event) {
    if (next_event != kNever) queue_.push({next_event, process});
  }
  /// Takes the process whose event is next. `next_event` returns that of a process: one whose event came
  /// earlier or later than it stands here has been put again.
  template <class NextEvent>
  bool take(std::size_t& process, NextEvent&& next_event) {
    while (!queue_.empty()) {
      const Entry entry = queue_.top();
      queue_.pop();
      process = entry.second;
      if (entry.first == next_event(process)) return true;
    }
    return false;
  }
  /// No event of the others comes before that time.
  Time until() const { return queue_.empty() ? kNever : queue_.top().first; }

 private:
  using Entry = std::pair<Time, std::size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

class Run {
 public:
  Run(const Workload& workload, const Settings& settings, const RankKinds& kinds,
      const std::vector<Node>& nodes, const std::vector<std::shared_ptr<const Schedule>>& schedules,
      bool rehearses)
      : settings_(settings) {
    std::vector<std::uint32_t> simulated;
    for (const Node& node : nodes)
      for (const Member& member : node) simulated.push_back(member.rank);
    if (workload.coupled) meetings_ = workload.coupled->meetings(workload, kinds, simulated);
    for (const Node& members : nodes) {
      RunningNode& node = *nodes_.emplace_back(std::make_unique<RunningNode>(settings, members));
      node.result.ranks_simulated = static_cast<int>(members.size());
      for (std::size_t place = 0; place < members.size(); ++place) {
        RankTerms terms = terms_of(workload, node, place, members.size());
        if (!schedules.empty()) terms.schedule = schedules[ranks_.size()];
        terms.rehearses = rehearses;
        ranks_.push_back({std::make_unique<SimulatedRank>(workload, settings, members[place],
                                                          std::move(terms), node.levels),
                          &node, place});
        node.helpers.add(place);
      }
    }
  }

  void run() {
    for (std::size_t number = 0; number < ranks_.size(); ++number) {
      attend(ranks_[number]);
      put(number);
    }
    const auto next_event = [this](std::size_t number) {
      return ranks_[number].ended ? kNever : ranks_[number].process().next_event();
    };
    for (std::size_t number = 0; time_line_.take(number, next_event);) {
      Rank& rank = ranks_[number];
      rank.process().step(time_line_.until());
      attend(rank);
      wake(rank.process().now());
      if (rank.process().running() || rank.process().helper_busy())
        put(number);
      else
        end(rank);
    }
    for (Rank& rank : ranks_) {
      PINION_ASSERT(rank.ended && "no rank waits for a message that never comes");
      if (!rank.ended) end(rank);
    }
  }

  std::vector<NodeResult> results() {
    std::vector<NodeResult> results;
    for (const auto& node : nodes_) {
      add_levels(*node);
      results.push_back(std::move(node->result));
    }
    return results;
  }
  std::vector<std::shared_ptr<const Schedule>> rehearsed() {
    std::vector<std::shared_ptr<const Schedule>> schedules;
    for (Rank& rank : ranks_) schedules.push_back(rank.rank->rehearsed());
    return schedules;
  }

 private:
  struct Rank {
    std::unique_ptr<SimulatedRank> rank;
    RunningNode* node;
    std::size_t place;  ///< among the node's
    bool ended = false;
    Process& process() const { return rank->process(); }
  };

  RankTerms terms_of(const Workload& workload, RunningNode& node, std::size_t place, std::size_t places) {
    RankTerms terms;
    terms.budget = budget_of(settings_, node.ranks);
    const bool own_core = workload.contains_helpers || terms.budget.core_idle;
    terms.delays_threads = own_core ? 0 : terms.budget.delay;
    terms.turn_after = node.helpers.turn_after(place, places);
    std::tie(terms.room, terms.limit) = node.limit.enter();
    if (!meetings_) return terms;
    terms.peers = &meetings_->peers_of(ranks_.size());
    // The peers that wait for a delayed rank do so by themselves.
    if (!own_core) terms.delays_threads = std::max(1.0, static_cast<double>(node.ranks) / settings_.cores);
    return terms;
  }

  void put(std::size_t number) { time_line_.put(number, ranks_[number].process().next_event()); }
  static void attend(Rank& rank) { rank.node->helpers.attend(rank.place, rank.process()); }
  void wake(Time now) {
    if (!meetings_) return;
    for (const std::uint32_t number : meetings_->woken()) {
      ranks_[number].process().peers_came(now);
      put(number);
    }
  }

  void end(Rank& rank) {
    rank.ended = true;
    Process& process = rank.process();
    process.finish();
    RunningNode& node = *rank.node;
    node.end = std::max(node.end, process.ended());
    NodeResult& result = node.result;
    if (settings_.keep_profiles && !result.profiles.count(rank.rank->program()))
      result.profiles[rank.rank->program()] = rank.rank->profile();
    const runlog::Counters counters = process.counters();
    const std::uint64_t events =
        counters.acquires + counters.registrations + counters.deregistrations + counters.memory_events;
    add(result.counters, counters, rank.rank->ranks());
    result.kept_all_below_bytes = std::min(result.kept_all_below_bytes, counters.kept_all_below_bytes);
    result.at_end = std::max(result.at_end, process.takes_at_end());
    result.events_simulated += events;
    result.events += events * rank.rank->ranks();
  }

  static void add_levels(RunningNode& node) {
    Levels& levels = node.levels;
    levels.registered.advance(node.end);
    levels.left_pinned.advance(node.end);
    levels.oracle.advance(node.end);
    NodeResult& result = node.result;
    result.length = node.end - kStart;
    const auto length = static_cast<double>(std::max<Duration>(result.length, 1));
    result.registered.peak = levels.registered.peak();
    result.registered.mean = levels.registered.byte_ns() / length;
    result.registered.oracle_peak = levels.oracle.peak();
    result.registered.oracle_mean = levels.oracle.byte_ns() / length;
    result.registered.leave_pinned_peak = levels.left_pinned.peak();
    result.registered.leave_pinned_mean = levels.left_pinned.byte_ns() / length;
    result.timeline = std::move(levels.timeline);
  }

  const Settings& settings_;
  std::unique_ptr<Meetings> meetings_;  ///< null: nobody waits for anybody
  std::vector<std::unique_ptr<RunningNode>> nodes_;
  std::vector<Rank> ranks_;
  TimeLine time_line_;
};

/// The schedules that the ranks follow where registration takes no time.
std::vector<std::shared_ptr<const Schedule>> rehearse(const Workload& workload, const Settings& settings,
                                                      const RankKinds& kinds,
                                                      const std::vector<Node>& nodes) {
  Settings rehearsal;
  rehearsal.retention = RetentionKind::leave_pinned;
  rehearsal.nic = CostModel{};
  rehearsal.seed = settings.seed;
  if (settings.predictor == "oracle") rehearsal.disturbance = settings.disturbance;
  Run run(workload, rehearsal, kinds, nodes, {}, true);
  run.run();
  return run.rehearsed();
}

}  // namespace

std::vector<NodeResult> simulate_nodes(const Workload& workload, const Settings& settings,
                                       const RankKinds& kinds, const std::vector<Node>& nodes) {
  std::vector<std::shared_ptr<const Schedule>> schedules;
  const bool given = settings.predictor == "oracle" || settings.predictor == "schedule";
  if (given && traits_of(settings.retention).predicts) schedules = rehearse(workload, settings, kinds, nodes);
  Run run(workload, settings, kinds, nodes, schedules, false);
  run.run();
  return run.results();
}

}  // namespace pinion::simulate
