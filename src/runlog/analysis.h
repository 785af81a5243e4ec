// The figures of a run, computed from its logs for reports and comparisons, by these definitions.
//
// Registered bytes of a domain are the union of its registered pages, each from the call of its registration
// to the return of its deregistration; of a process and of a node, the sum over domains and processes on one
// time line (CLOCK_MONOTONIC is the node's). Means are integrals over the run's length. Two hypothetical
// strategies are computed from the same stream: the oracle holds the union of the pages under lease, each
// lease from the end of its acquire. It registers new pages just in time before that (by the fitted a * pages
// + b of the domain); leave-pinned holds every page ever leased until a memory event takes it; both in each
// domain by itself.
//
// Seconds are means over ranks, because ranks run side by side; byte counts and event counts are sums.
// Values without state outside; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runlog/log_timelines.h"
#include "runlog/reader.h"
#include "runlog/timeline.h"

namespace pinion::runlog {

struct RegisteredBytes {
  std::uint64_t peak = 0, oracle_peak = 0, leave_pinned_peak = 0;
  double mean = 0, oracle_mean = 0, leave_pinned_mean = 0;
  /// Whether the log has events to compute oracle and leave-pinned from; else they are 0.
  bool bounds_known = true;
};

/// Registered bytes over time, in bins of Report::series_bin from the start of the node's first process on.
struct MemorySeries {
  Timeline::Bins registered;
  Timeline::Bins oracle, leave_pinned;  ///< empty where they are not known
};

struct Acquires {
  std::uint64_t total = 0, hits = 0, waits = 0, misses = 0, late = 0, bounced = 0, observed = 0;
  Acquires& operator+=(const Acquires& other);
};

/// The time of communication by its causes, in seconds.
struct Cost {
  double on_demand = 0;    ///< registering (and deregistering) on the critical path
  double waits = 0;        ///< for a registration in progress
  double bounce = 0;       ///< copies instead of registration
  double bookkeeping = 0;  ///< signatures, time stamps, lookups, leases, records
  double helper_cpu = 0;
  double helper_charged = 0;  ///< of the helper's work while no core was idle, in time of the run
  double leave_pinned = 0;    ///< leave-pinned's registrations on the same stream
  double preempted = 0;       ///< of on_demand and waits: they grew so much as the kernel ran something else

  double registration() const { return on_demand + waits + bounce; }
  double added() const { return registration() + bookkeeping + helper_charged - leave_pinned; }
};

struct Prediction {
  std::uint64_t reuses = 0, late = 0;
  double within_0_5 = 0, within_5 = 0;  ///< shares of reuses
  double at_release_within_0_5 = 0, at_release_within_5 = 0;
};

/// The time budget of retention helper (retention/costs.h), in seconds.
struct TimeBudgetUse {
  double allowed = 0;  ///< nothing where nothing is bounded
  double on_threads = 0, by_helper = 0;
  double preempted = 0;       ///< of on_threads: the kernel ran something else meanwhile
  std::uint64_t refused = 0;  ///< times that a region was kept for want of budget
  double spent() const { return on_threads + by_helper; }
};

/// Registrations that the program made without Pinion, beyond the limits: how many bytes, and for how long.
struct BeyondLimits {
  std::uint64_t bytes = 0, regions = 0;  ///< at most
  double seconds = 0;
};

/// Registered memory that went because the node was short of memory (retention/shortage.h).
struct PressureReleases {
  std::uint64_t bytes = 0;  ///< in all
  std::uint64_t times = 0;  ///< shortages in which something went
};

/// Keys for peers: keys that outlived their registration, and the cost of preventing it.
struct KeyUse {
  double exposed_byte_seconds = 0;
  double strict_seconds = 0;
};

/// Registrations of the program's that went on to its libibverbs, by PassedFor.
struct PassedOn {
  Passed by[kPassedReasons]{};
  Passed all() const;
};

/// Memory that was advised to lie in transparent hugepages from the start, or that the helper has turned into
/// them.
struct HelpersHugepages {
  std::uint64_t advised = 0;
  std::uint64_t bytes = 0;
  std::uint64_t refused_bytes[kCollapseRefusals]{};  ///< by CollapseRefusal
  double cpu_seconds = 0, longest_seconds = 0;       ///< the longest call
  std::uint64_t refused() const;
};

/// The part of the process's memory that peers held (firehose). Zero where events were dropped, as it is
/// unknown.
struct PeerHolds {
  std::uint64_t count = 0, peak = 0;  ///< registrations held, bytes
  double mean = 0;                    ///< bytes, over the run
};

/// Copies between host memory and GPUs, by CopyWay.
struct GpuCopies {
  Copies to_gpu[kCopyWays]{}, from_gpu[kCopyWays]{};
  /// Copies whose bytes were compared at both ends; of them, those that differed.
  std::uint64_t verified = 0, differing = 0;
  bool any() const;
};

struct RankReport {
  std::string host;
  Acts acts = Acts::pinned;
  std::int32_t rank = -1;
  std::uint32_t process = 0;
  bool complete = false;             ///< the run ended in order
  bool running = false;              ///< it goes on: its file is still written to
  double stopped_after_seconds = 0;  ///< `pinion stop` made Pinion stand aside; 0: it did not
  double wall_seconds = 0;
  RegisteredBytes registered;
  MemorySeries series;
  Acquires acquires;
  std::uint64_t registrations = 0, deregistrations = 0, registration_failures = 0;
  std::uint64_t registered_now_bytes = 0;  ///< when the log was read
  std::uint64_t pinned_at_exit_bytes = 0;
  std::uint64_t kernel_pinned_peak_bytes = 0;  ///< of several processes: the sum of their peaks
  std::uint64_t events = 0, events_dropped = 0;
  std::uint64_t records_dropped = 0;  ///< of events_dropped: before the log, in full rings
  Cost cost;
  Prediction prediction;
  TimeBudgetUse budget;
  BeyondLimits beyond;
  PressureReleases under_pressure;
  std::uint64_t kept_all_below_bytes = 0;  ///< Counters::kept_all_below_bytes
  KeyUse keys;
  PassedOn passed;
  HelpersHugepages hugepages;
  PeerHolds holds;
};

struct NodeReport {
  std::string host;
  std::uint64_t ranks = 0;
  double wall_seconds = 0;
  RegisteredBytes registered;
  MemorySeries series;
};

/// A domain's part, summed over the processes that have one of that number, device and NIC.
struct DomainReport {
  std::uint32_t number = 0;
  std::string device, nic, description;
  std::uint64_t max_regions = 0, max_region_bytes = 0, max_bytes = 0;  ///< caps in each process; 0: none
  std::uint64_t ranks = 0;                                             ///< processes
  std::uint64_t peak = 0;                                              ///< the sum of the processes' peaks
  double mean = 0;
  Acquires acquires;  ///< `late` is known of processes only
  std::uint64_t registrations = 0, deregistrations = 0, registration_failures = 0;
  /// Cost of a call, as the helper of the process with most registrations has fitted it.
  double register_ns_per_page = 0, register_ns_base = 0, deregister_ns_per_page = 0, deregister_ns_base = 0;
  std::uint64_t fitted_registrations = 0;  ///< of that process
};

/// A call, in the file of code that has it.
struct SiteFrame {
  std::string path, build_id;  ///< of the file; the id's bytes, or nothing
  std::uint64_t address = 0;   ///< there, in the call
};

struct CallSite {
  std::string name;               ///< as the log names it, or the hash
  std::vector<SiteFrame> frames;  ///< the program's, innermost first; empty where the log lacks them
  std::string python;             ///< the line of Python that it was first met at; empty: none
  std::string call;
  std::uint64_t acquires = 0, bytes = 0, hits = 0, waits = 0, misses = 0, late = 0, bounced = 0;
  double wait_seconds = 0;       ///< critical path beyond hits, summed over ranks
  double held_byte_seconds = 0;  ///< registered after its uses (held_after.h), summed over ranks

  /// Adds the same call site of another process.
  CallSite& operator+=(const CallSite& other);
};

struct Report {
  std::string command, options, predictor, version;
  Acts acts = Acts::measured;  ///< of the process that does most; retention and device are its own
  std::string retention, device;
  std::uint64_t limit_bytes = 0;  ///< of one process
  std::int32_t ranks = 0;         ///< logs that were read
  Time start = 0;                 ///< of the process that began first
  std::int32_t job_ranks = 0;     ///< ranks that the job had, as those who left a log know
  double wall_seconds = 0;        ///< of the node that ran longest
  Duration series_bin = 0;        ///< width of the bins of each MemorySeries
  std::vector<NodeReport> nodes;  ///< highest peak first: the first one's registered bytes head the report
  Acquires acquires;
  std::uint64_t registrations = 0, deregistrations = 0, registration_failures = 0;
  std::uint64_t pinned_at_exit_bytes = 0;
  std::uint64_t kernel_pinned_peak_bytes = 0;  ///< of several processes: the sum of their peaks
  std::uint64_t events = 0, events_dropped = 0;
  /// Seconds from the beginning that oracle, leave-pinned and call sites cover, where events were dropped.
  /// Otherwise the run's length.
  double events_cover_seconds = 0;
  Cost cost;
  Prediction prediction;
  TimeBudgetUse budget;                    ///< seconds: mean over ranks
  BeyondLimits beyond;                     ///< each the most of a rank
  PressureReleases under_pressure;         ///< bytes: sum, times: the most of a rank
  std::uint64_t kept_all_below_bytes = 0;  ///< the least of a rank, so 0 where one has let regions go
  KeyUse keys;                             ///< bytes: sum, seconds: mean over ranks
  PassedOn passed;                         ///< sums over ranks
  HelpersHugepages hugepages;              ///< sums over ranks, the longest call of all
  PeerHolds holds;                         ///< sums over ranks
  std::vector<RankReport> per_rank;        ///< by host and rank
  GpuCopies copies;
  std::vector<DomainReport> domains;  ///< by number
  std::vector<CallSite> call_sites;   ///< most time lost first, then most bytes

  bool all_events() const { return events_dropped == 0; }
  bool call_sites_known() const { return all_events() || events_cover_seconds > 0; }
  const RegisteredBytes& registered() const { return nodes.front().registered; }
  /// seconds added, as a share of the run.
  double share_added() const { return wall_seconds > 0 ? cost.added() / wall_seconds : 0; }
};

/// `logs` is one run: at least one log.
Report analyse(const std::vector<Log>& logs);
/// Analyses files and directories, up to eight logs at a time, each in a thread. These, and one that is being
/// read, are in memory.
Error analyse(const std::vector<std::string>& paths, Report& report);

// The figures of counters, also those of a simulated process.

/// "pinned", "measured", "verbs" or "cuda".
const char* to_string(Acts acts);
const char* to_string(CopyWay way);

/// Adds `n` times the counts and times that figures of several processes are made of.
void add(Counters& sum, const Counters& counters, std::uint64_t n = 1);
Acquires acquires_of(const Counters& counters);
Prediction prediction_of(const Counters& counters);
GpuCopies copies_of(const Counters& counters);
void add(GpuCopies& sum, const GpuCopies& copies);

/// Returns the site's name and frames, without figures.
CallSite call_site_of(const Log& log, const SiteEntry& site);

}  // namespace pinion::runlog
