// The simulated job: its ranks, their programs and their nodes. Made from the logs of a run, or by papers/
// from a pattern; values.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/model/cost_model.h"
#include "runlog/reader.h"
#include "simulate/call_times.h"
#include "simulate/peers.h"
#include "simulate/placement.h"
#include "simulate/program.h"
#include "simulate/wake_latency.h"

namespace pinion::simulate {

/// The course of a process's registrations and its helper, from its log.
struct Recorded {
  bool measured = false;  ///< nothing was registered: there are no calls to learn from
  CostModel nic;          ///< the fit of its calls; free where it made none
  CallTimes call_times;
  WakeLatency wake_latency;
};

struct Workload {
  struct Rank {
    std::uint32_t program;
    Duration starts = 0;  ///< after the first rank of its node
  };

  std::string log, pattern;  ///< its source; one of them is empty
  std::string command;       ///< that a log was recorded of
  Placement placement;
  std::vector<Program> programs;  ///< ranks that do the same share one
  std::vector<Rank> ranks;
  std::shared_ptr<const Coupled> coupled;  ///< of a pattern's ranks; of a log: null, as logs name no peers
  std::vector<Recorded> recorded;          ///< with each program that a log was read for; of a pattern: empty
  // The machine's figures from the logs.
  double memcpy_bytes_per_ns = 10;  ///< of a bounce buffer: an assumption, for patterns
  double bookkeeping_ns = 100;      ///< of an acquire: an assumption, for patterns
  int cores = 0;                    ///< of a node; 0: not known
  std::uint64_t limit_bytes = 0;    ///< that was in force in each process; 0: not known
  std::string options;              ///< that differed from the defaults; of a pattern: empty
  bool of_mpi = true;               ///< its processes were ranks
  bool contains_helpers = false;    ///< the recorded times: they contain the helpers' use of the ranks' cores
  /// Where events were lost: the recorded part of the run, in seconds; else 0.
  double covers_seconds = 0;
};

struct Tiling {
  int ranks = 0;  ///< 0: as many as there are logs
  int ppn = 0;    ///< 0: as recorded; copies of a rank run on copies of its node
  std::string placement = "packed";
  Duration skew = kMillisecond;  ///< each further copy of the run begins so much later
};
/// The logs of one run, in order of rank.
Error log_workload(std::vector<runlog::Log> logs, const Tiling& tiling, Workload& workload);

/// The program of a process, with its waits for registration taken out.
Program program_of(const runlog::Log& log);

}  // namespace pinion::simulate
