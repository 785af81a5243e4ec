// One simulated process of a node, which stands for all ranks of its kind there: its bytes count for each of
// them. Owns its program's scripts, its conditions and the process; adds its bytes to the node's levels. One
// thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "node/node_table.h"
#include "simulate/levels.h"
#include "simulate/node.h"
#include "simulate/process.h"
#include "simulate/schedule_predictor.h"

namespace pinion::simulate {

// Records and time stamps of a run begin well after 0, as on a real machine.
constexpr Time kStart = kSecond;

/// The bytes that a node holds, has ever leased, and would hold under an oracle.
struct Levels {
  Level registered{kStart}, left_pinned{kStart};
  LateLevel oracle{kStart};
  bool keeps_timeline = false;
  runlog::Timeline timeline;  ///< of `registered`, from 0 on
};

/// The terms that a process has of its node.
struct RankTerms {
  TimeBudget::Settings budget;
  double delays_threads = 0;  ///< by its helper's work
  std::function<Time(Time)> turn_after;
  std::unique_ptr<node::NodeTable> room;
  std::uint64_t limit = UINT64_MAX;
  Peers* peers = nullptr;
  std::shared_ptr<const Schedule> schedule;  ///< for predictors that are given it
  bool rehearses = false;                    ///< keeps its own uses
};

class SimulatedRank final : private Observer {
 public:
  /// Workload and levels outlive it.
  SimulatedRank(const Workload& workload, const Settings& settings, const Member& member, RankTerms terms,
                Levels& levels);

  Process& process() { return process_; }
  /// The profile of the domain that has most, as a run keeps it.
  std::string profile();
  std::uint32_t program() const { return number_; }
  std::uint64_t ranks() const { return static_cast<std::uint64_t>(count_); }
  /// All its uses, after the end of a rehearsal.
  std::shared_ptr<const Schedule> rehearsed();

 private:
  std::vector<std::unique_ptr<Predictor>> predictors(const Settings& settings) const;
  std::unique_ptr<Predictor> predictor(const Settings& settings) const;
  ProcessSettings process_settings(const Workload& workload, const Settings& settings);

  void registered(Time now, Time since, std::int64_t bytes) override;
  void left_pinned(Time now, std::int64_t bytes) override { levels_.left_pinned.change(now, count_ * bytes); }
  void oracle_held(Time time, std::int64_t bytes) override {
    levels_.oracle.change(process_.now(), time, count_ * bytes);
  }
  void used(const TakenRecord& use) override {
    if (terms_.rehearses) uses_.push_back(use);
  }

  const std::int64_t count_;
  const std::uint32_t number_;  ///< of its program
  const Duration starts_;
  RankTerms terms_;
  Levels& levels_;
  const Program& program_;
  const std::vector<std::unique_ptr<Script>> scripts_;
  Recorded conditions_;
  std::vector<TakenRecord> uses_;
  Process process_;
};

}  // namespace pinion::simulate
