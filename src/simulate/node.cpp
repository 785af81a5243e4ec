#include "simulate/node.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "node/node_table.h"
#include "node/policy.h"
#include "simulate/levels.h"

namespace pinion::simulate {

namespace {

// Records and time stamps of a run begin well after 0, as on a real machine.
constexpr Time kStart = kSecond;

/// The bytes that the node holds, has ever leased, and would hold under an oracle.
struct Levels {
  Level registered{kStart}, left_pinned{kStart};
  LateLevel oracle{kStart};
  bool keeps_timeline = false;
  runlog::Timeline timeline;  ///< of `registered`, from 0 on
};

std::vector<std::unique_ptr<Script>> scripts_of(const Program& program, NoiseModel noise,
                                                std::uint64_t seed) {
  std::vector<std::unique_ptr<Script>> scripts;
  for (std::size_t thread = 0; thread < program.threads.size(); ++thread)
    scripts.push_back(std::make_unique<ProgramScript>(program.threads[thread], noise, seed_of(seed, thread)));
  return scripts;
}

/// The settings override the recorded conditions.
Recorded conditions(const Workload& workload, const Settings& settings, std::uint32_t program) {
  Recorded conditions;
  if (!workload.recorded.empty()) conditions = workload.recorded[program];
  if (settings.nic) {
    conditions.nic = *settings.nic;
    conditions.call_times = {};
  }
  if (settings.wake_latency) conditions.wake_latency = WakeLatency(*settings.wake_latency);
  return conditions;
}

// CPU of the helper beside its device calls, as measured (docs/measurements.md).
constexpr Duration kWakeCost = 5 * kMicrosecond, kRecordCost = kMicrosecond;

/// One simulated process; its bytes count for all the ranks that it represents.
class SimulatedRank final : private Observer {
 public:
  SimulatedRank(const Workload& workload, const Settings& settings, const Member& member, bool own_core,
                const TimeBudget::Settings& budget, std::function<Time(Time)> turn_after, Levels& levels,
                std::unique_ptr<node::NodeTable> room, std::uint64_t limit)
      : count_(static_cast<std::int64_t>(member.ranks)),
        number_(member.program),
        levels_(levels),
        room_(std::move(room)),
        program_(workload.programs[member.program]),
        scripts_(scripts_of(program_, settings.noise, member.seed)),
        conditions_(conditions(workload, settings, member.program)),
        process_({.retention = settings.retention,
                  .nic = conditions_.nic,
                  .limit = limit,
                  .room = room_.get(),
                  .look_every = settings.policy_every,
                  .lru_bytes = settings.lru_bytes,
                  .time_budget = budget,
                  .minimum_gain = settings.minimum_gain,
                  .wake_cost = kWakeCost,
                  .record_cost = kRecordCost,
                  .minimize_peak = settings.minimize_peak,
                  .own_core = own_core,
                  .poll = settings.poll,
                  .ring = 256 * program_.threads.size(),
                  .memcpy_bytes_per_ns = workload.memcpy_bytes_per_ns,
                  .start = kStart + member.starts,
                  .wake_latency = [this] { return conditions_.wake_latency.next(); },
                  .turn_after = std::move(turn_after),
                  .call_time =
                      [this](Actor actor, bool registration, Duration modelled) {
                        return conditions_.call_times.next(actor, registration, modelled);
                      }},
                 predictors(settings, member), *this) {
    for (const auto& script : scripts_) process_.add_thread(*script);
  }

  Process& process() { return process_; }
  /// The profile of the domain that has most, as a run keeps it.
  std::string profile() {
    std::string most;
    for (std::size_t domain = 0; domain < program_.domains; ++domain)
      if (std::string profile = process_.retention(domain).profile(); profile.size() > most.size())
        most = std::move(profile);
    return most;
  }
  std::uint32_t program() const { return number_; }
  std::uint64_t ranks() const { return static_cast<std::uint64_t>(count_); }

 private:
  std::vector<std::unique_ptr<Predictor>> predictors(const Settings& settings, const Member& member) const {
    std::vector<std::unique_ptr<Predictor>> predictors;
    while (predictors.size() < program_.domains) predictors.push_back(predictor(settings, member));
    return predictors;
  }
  std::unique_ptr<Predictor> predictor(const Settings& settings, const Member& member) const {
    const bool oracle = settings.predictor == "oracle";
    if (!oracle && settings.predictor != "schedule") {
      std::unique_ptr<Predictor> learns =
          make_predictor(settings.predictor, settings.window, settings.period_window);
      // A damaged profile leaves the predictor as it was.
      if (member.program < settings.profiles.size())
        if (const std::string& profile = settings.profiles[member.program]; !profile.empty())
          static_cast<void>(learns->load_profile(profile));
      return learns;
    }
    return std::make_unique<SchedulePredictor>(
        oracle ? "oracle" : "schedule",
        std::make_shared<Schedule>(
            schedule_of(scripts_of(program_, oracle ? settings.noise : NoiseModel{}, member.seed),
                        kStart + member.starts)));
  }

  void registered(Time now, Time since, std::int64_t bytes) override {
    levels_.registered.change_since(since, now, count_ * bytes);
    if (levels_.keeps_timeline) levels_.timeline.change(since - kStart, count_ * bytes);
  }
  void left_pinned(Time now, std::int64_t bytes) override { levels_.left_pinned.change(now, count_ * bytes); }
  void oracle_held(Time time, std::int64_t bytes) override {
    levels_.oracle.change(process_.now(), time, count_ * bytes);
  }

  const std::int64_t count_;
  const std::uint32_t number_;  ///< of its program
  Levels& levels_;
  const std::unique_ptr<node::NodeTable> room_;
  const Program& program_;
  const std::vector<std::unique_ptr<Script>> scripts_;
  Recorded conditions_;
  Process process_;
};

}  // namespace

namespace {

/// The node's helpers under its policy. Each process looks at the others after so many of its own acquires,
/// as in the engine.
class Helpers {
 public:
  Helpers(const Settings& settings, std::uint64_t ranks)
      : settings_(settings),
        idle_cores_(settings.cores ? std::max(0, settings.cores - static_cast<int>(ranks))
                                   : static_cast<int>(ranks)),
        crowded_(static_cast<std::uint64_t>(idle_cores_) < ranks) {}

  /// Returns whether ranks that do the same may have other terms than each other.
  bool tell_ranks_apart() const {
    return crowded_ && idle_cores_ > 0 &&
           (settings_.policy == PolicyKind::aggressive || settings_.policy == PolicyKind::conservative);
  }
  void add(std::size_t process) {
    standings_.push_back({0, seed_of(settings_.seed, process)});
    look_at_.push_back(0);
  }
  std::function<Time(Time)> turn_after(std::size_t process, std::size_t processes) const {
    if (settings_.policy != PolicyKind::aggressive || !tell_ranks_apart()) return {};
    const auto cores = static_cast<std::size_t>(idle_cores_), core = process % cores;
    const auto on_core = static_cast<Duration>((processes + cores - 1 - core) / cores);
    const Duration slice = settings_.time_slices.slice, each = slice + settings_.time_slices.context_switch;
    const Duration first = static_cast<Duration>(process / cores) * each;
    // Round robin: everyone has his slice, whether he uses it or not.
    return [=](Time time) {
      const Duration into = (time + on_core * each - first % (on_core * each)) % (on_core * each);
      return into < slice ? time : time + on_core * each - into;
    };
  }
  void attend(std::size_t number, Process& process) {
    if (settings_.policy == PolicyKind::sleeping || process.acquires() < look_at_[number]) return;
    look_at_[number] = process.acquires() + settings_.policy_every;
    standings_[number].need = process.left_pinned_bytes();
    const node::Terms terms =
        node::terms_of(settings_.policy, standings_, number, idle_cores_, settings_.time_slices);
    process.set_helper(terms.helper, terms.turn);
  }

 private:
  const Settings& settings_;
  const int idle_cores_;
  const bool crowded_;
  std::vector<node::Standing> standings_;
  std::vector<std::uint64_t> look_at_;
};

/// The node's limit, dealt out among its processes by the code that deals it out in a run.
class NodeLimit {
 public:
  NodeLimit(const Settings& settings, std::uint64_t ranks)
      : limit_(traits_of(settings.retention).registers ? settings.node_limit : 0),
        process_limit_(settings.limit ? settings.limit : UINT64_MAX),
        ranks_(std::max<std::uint64_t>(ranks, 1)) {}

  bool given() const { return limit_ > 0; }
  /// Returns the next process's membership and its own limit.
  std::pair<std::unique_ptr<node::NodeTable>, std::uint64_t> enter() {
    if (!given()) return {nullptr, process_limit_};
    auto room = std::make_unique<node::NodeTable>();
    // Processes beyond the table's places keep to an equal part, as in a run.
    if (room->join(file_, limit_, ++entered_)) return {nullptr, std::min(process_limit_, limit_ / ranks_)};
    return {std::move(room), std::min(process_limit_, limit_)};
  }

 private:
  const std::uint64_t limit_, process_limit_, ranks_;
  const std::shared_ptr<node::SharedTable> file_ = limit_ ? node::NodeTable::simulated() : nullptr;
  std::uint64_t entered_ = 0;
};

std::vector<Member> one_by_one(const std::vector<Member>& members) {
  std::vector<Member> all;
  for (Member member : members) {
    const std::uint64_t ranks = std::exchange(member.ranks, 1);
    all.insert(all.end(), ranks, member);
  }
  return all;
}

TimeBudget::Settings budget_of(const Settings& settings, std::uint64_t ranks) {
  TimeBudget::Settings budget{.share = settings.time_budget, .core_idle = true};
  if (settings.cores > 0) {
    budget.delay = TimeBudget::delay_of(static_cast<double>(ranks), settings.cores);
    budget.core_idle = ranks < static_cast<std::uint64_t>(settings.cores);
  }
  return budget;
}

/// A process that has not ended yet.
struct Running {
  std::size_t number;
  SimulatedRank* rank;
  Process& process() const { return rank->process(); }
};

struct Turn {
  std::size_t of = 0;   ///< the running process whose event is next
  Time until = kNever;  ///< it may go so far before another one's
};
Turn next_turn(const std::vector<Running>& running) {
  Turn turn;
  for (std::size_t i = 1; i < running.size(); ++i) {
    Time other = running[i].process().next_event();
    const Time earliest = running[turn.of].process().next_event();
    if (other < earliest) {
      turn.of = i;
      other = earliest;
    }
    turn.until = std::min(turn.until, other);
  }
  return turn;
}

/// Adds the figures of a process that has finished.
void add_rank(NodeResult& result, SimulatedRank& rank, bool keep_profiles) {
  if (keep_profiles && !result.profiles.count(rank.program()))
    result.profiles[rank.program()] = rank.profile();
  const runlog::Counters counters = rank.process().counters();
  const std::uint64_t events =
      counters.acquires + counters.registrations + counters.deregistrations + counters.memory_events;
  add(result.counters, counters, rank.ranks());
  result.kept_all_below_bytes = std::min(result.kept_all_below_bytes, counters.kept_all_below_bytes);
  result.events_simulated += events;
  result.events += events * rank.ranks();
}

void add_levels(NodeResult& result, Levels& levels, Time end) {
  levels.registered.advance(end);
  levels.left_pinned.advance(end);
  levels.oracle.advance(end);
  result.length = end - kStart;
  const auto length = static_cast<double>(std::max<Duration>(result.length, 1));
  result.registered.peak = levels.registered.peak();
  result.registered.mean = levels.registered.byte_ns() / length;
  result.registered.oracle_peak = levels.oracle.peak();
  result.registered.oracle_mean = levels.oracle.byte_ns() / length;
  result.registered.leave_pinned_peak = levels.left_pinned.peak();
  result.registered.leave_pinned_mean = levels.left_pinned.byte_ns() / length;
}

}  // namespace

NodeResult simulate_node(const Workload& workload, const Settings& settings,
                         const std::vector<Member>& kinds) {
  std::uint64_t all = 0;
  for (const Member& member : kinds) all += member.ranks;
  Helpers helpers(settings, all);
  NodeLimit limit(settings, all);
  const std::vector<Member> members = helpers.tell_ranks_apart() || limit.given() ? one_by_one(kinds) : kinds;
  const TimeBudget::Settings budget = budget_of(settings, all);
  const bool own_core = workload.contains_helpers || budget.core_idle;
  Levels levels;
  levels.keeps_timeline = settings.keep_timeline;
  std::vector<std::unique_ptr<SimulatedRank>> ranks;
  for (const Member& member : members) {
    auto [room, most] = limit.enter();
    ranks.push_back(std::make_unique<SimulatedRank>(workload, settings, member, own_core, budget,
                                                    helpers.turn_after(ranks.size(), members.size()), levels,
                                                    std::move(room), most));
    helpers.add(ranks.size() - 1);
  }
  std::vector<Running> running;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    helpers.attend(i, ranks[i]->process());
    running.push_back({i, ranks[i].get()});
  }

  NodeResult result;
  result.ranks_simulated = static_cast<int>(ranks.size());
  Time end = kStart;
  while (!running.empty()) {
    const Turn turn = next_turn(running);
    const Running& next = running[turn.of];
    Process& process = next.process();
    process.step(turn.until);
    helpers.attend(next.number, process);
    if (process.running() || process.helper_busy()) continue;
    process.finish();
    end = std::max(end, process.ended());
    add_rank(result, *next.rank, settings.keep_profiles);
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(turn.of));
  }
  add_levels(result, levels, end);
  result.timeline = std::move(levels.timeline);
  return result;
}

}  // namespace pinion::simulate
