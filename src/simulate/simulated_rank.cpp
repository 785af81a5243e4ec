#include "simulate/simulated_rank.h"

#include <algorithm>
#include <utility>

#include "predict/predictor.h"
#include "simulate/random.h"

namespace pinion::simulate {

namespace {

// CPU of the helper beside its device calls, as measured (evidence-measured.md).
constexpr Duration kWakeCost = 5 * kMicrosecond, kRecordCost = kMicrosecond;
constexpr std::size_t kHugepage = std::size_t{2} << 20;

std::vector<std::unique_ptr<Script>> scripts_of(const Program& program, const Settings& settings,
                                                std::uint32_t rank) {
  std::vector<std::unique_ptr<Script>> scripts;
  const std::uint64_t seed = seed_of(settings.seed, rank);
  for (std::size_t thread = 0; thread < program.threads.size(); ++thread)
    scripts.push_back(std::make_unique<ProgramScript>(
        program.threads[thread],
        settings.disturbance ? settings.disturbance(seed_of(seed, thread)) : nullptr));
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

}  // namespace

SimulatedRank::SimulatedRank(const Workload& workload, const Settings& settings, const Member& member,
                             RankTerms terms, Levels& levels)
    : count_(static_cast<std::int64_t>(member.ranks)),
      number_(workload.ranks[member.rank].program),
      starts_(workload.ranks[member.rank].starts),
      terms_(std::move(terms)),
      levels_(levels),
      program_(workload.programs[number_]),
      scripts_(scripts_of(program_, settings, member.rank)),
      conditions_(conditions(workload, settings, number_)),
      process_(process_settings(workload, settings), predictors(settings), *this) {
  if (terms_.peers) process_.meet_peers(*terms_.peers);
  for (const auto& script : scripts_) process_.add_thread(*script);
}

ProcessSettings SimulatedRank::process_settings(const Workload& workload, const Settings& settings) {
  return {.retention = settings.retention,
          .nic = conditions_.nic,
          .limit = terms_.limit,
          .room = terms_.room.get(),
          .look_every = settings.policy_every,
          .lru_bytes = settings.lru_bytes,
          .time_budget = terms_.budget,
          .minimum_gain = settings.minimum_gain,
          .helper_cpu = {kWakeCost, kRecordCost},
          .hugepages = {.unit = settings.hugepages == Hugepages::off ? 0 : kHugepage,
                        .born = settings.hugepages == Hugepages::heap},
          .delays_threads = terms_.delays_threads,
          .poll = settings.poll,
          .ring = 256 * program_.threads.size(),
          .memcpy_bytes_per_ns = workload.memcpy_bytes_per_ns,
          .start = kStart + starts_,
          .wake_latency = [this] { return conditions_.wake_latency.next(); },
          .turn_after = std::move(terms_.turn_after),
          .call_time =
              [this](Actor actor, bool registration, Duration modelled) {
                return conditions_.call_times.next(actor, registration, modelled);
              }};
}

std::string SimulatedRank::profile() {
  std::string most;
  for (std::size_t domain = 0; domain < program_.domains; ++domain)
    if (std::string profile = process_.retention(domain).profile(); profile.size() > most.size())
      most = std::move(profile);
  return most;
}

std::shared_ptr<const Schedule> SimulatedRank::rehearsed() {
  // They ended in another order than they began.
  std::stable_sort(uses_.begin(), uses_.end(), [](const TakenRecord& a, const TakenRecord& b) {
    return std::pair(a.thread, a.record.begin) < std::pair(b.thread, b.record.begin);
  });
  auto schedule = std::make_shared<Schedule>(program_.threads.size());
  for (const auto& [record, thread] : uses_)
    schedule->add(thread, static_cast<Time>(record.begin), {record.address, record.address + record.bytes},
                  record.site);
  return schedule;
}

std::vector<std::unique_ptr<Predictor>> SimulatedRank::predictors(const Settings& settings) const {
  std::vector<std::unique_ptr<Predictor>> predictors;
  while (predictors.size() < program_.domains) predictors.push_back(predictor(settings));
  return predictors;
}

std::unique_ptr<Predictor> SimulatedRank::predictor(const Settings& settings) const {
  if (terms_.schedule)
    return std::make_unique<SchedulePredictor>(settings.predictor == "oracle" ? "oracle" : "schedule",
                                               terms_.schedule);
  std::unique_ptr<Predictor> learns =
      make_predictor(settings.predictor, settings.window, settings.period_window);
  // A damaged profile leaves the predictor as it was.
  if (number_ < settings.profiles.size())
    if (const std::string& profile = settings.profiles[number_]; !profile.empty())
      static_cast<void>(learns->load_profile(profile));
  return learns;
}

void SimulatedRank::registered(Time now, Time since, std::int64_t bytes) {
  levels_.registered.change_since(since, now, count_ * bytes);
  if (levels_.keeps_timeline) levels_.timeline.change(since - kStart, count_ * bytes);
}

}  // namespace pinion::simulate
