// Sentences about a run's gaps and excesses, with ranks and hosts named; each empty where there is nothing to
// report. Shared by the summary and the report. Pure functions.
#pragma once

#include <string>

#include "runlog/analysis.h"

namespace pinion::cli {

/// "rank 3 on node7"; of a process without a rank, "process 123 on node7".
std::string rank_text(const runlog::RankReport& rank);
/// "2 ranks did not end in order (rank 1 on node7, rank 3 on node8)"; ranks that have not ended likewise.
std::string unfinished_text(const runlog::Report& report);
/// "`pinion stop` made Pinion stand aside in 1 rank (rank 0 on node7), 12.0 s into the run".
std::string stopped_text(const runlog::Report& report);
/// "1,234 events are missing (no space left where the log is; rank 1 on node7)".
std::string lost_events_text(const runlog::Report& report);
/// The part of the run that oracle, leave-pinned and call sites cover, where events are missing.
std::string covered_text(const runlog::Report& report);
/// "2 of 6 ranks (2, 5)": of the job's ranks, those without a log among the ones that were read. Logs that
/// were left on other nodes are missed this way.
std::string missing_ranks_text(const runlog::Report& report);
/// "64.0 MiB a process", "147 MiB a node", or both; empty where no limit was set or found.
std::string limit_text(const runlog::Report& report);
/// "by at most 16.0 MiB and 2 regions, for 1.20 s (most: rank 3 on node8)".
std::string beyond_text(const runlog::Report& report);
/// "released 1.20 GiB under memory pressure, 3 times".
std::string pressure_text(const runlog::PressureReleases& releases);
/// Why retention helper let nothing go; empty: it did, or might have.
std::string kept_all_text(std::uint64_t below_bytes);
/// The registrations that went on to the program's libibverbs, by their reasons; empty where none did.
std::string passed_text(const runlog::PassedOn& passed);
/// Says what the helper turned into hugepages, and why not more; empty where it tried nothing.
std::string hugepages_text(const runlog::HelpersHugepages& hugepages);
/// Memory that peers could reach, and the cost of strict keys.
std::string keys_text(const runlog::KeyUse& keys);
/// Transfers that were bounced for want of room. The log keeps those; of others, whose memory no device can
/// register, it has the count alone. All of them where events are missing.
std::uint64_t bounced_without_room(const runlog::Report& report);
/// Registrations reached the verbs front and went to libibverbs; or memory is pinned, and none reached the
/// verbs front.
std::string unseen_text(const runlog::Report& report);
std::string kernel_count_text(const runlog::Report& report);

}  // namespace pinion::cli
