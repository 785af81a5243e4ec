// Reports as JSON, by the keys of docs/commands.md: bytes are integers, times are seconds.
#pragma once

#include <nlohmann/json.hpp>

#include "cli/report/libraries_part.h"
#include "runlog/analysis.h"

namespace pinion::cli {

using Json = nlohmann::ordered_json;

Json to_json(const runlog::RegisteredBytes& bytes);  ///< null: not known
Json to_json(const runlog::Acquires& acquires);
Json to_json(const runlog::Cost& cost);  ///< the critical path, and the other terms of seconds added
Json to_json(const runlog::Prediction& prediction);
Json to_json(const runlog::BeyondLimits& beyond);
Json to_json(const runlog::PressureReleases& releases);
Json to_json(const runlog::PassedOn& passed);
Json to_json(const runlog::HelpersHugepages& hugepages);
Json to_json(const runlog::PeerHolds& holds);
Json to_json(const runlog::TimeBudgetUse& budget);
/// Kept for one version: the keys of the bound that the helper had for itself.
Json helper_share_json(const runlog::TimeBudgetUse& budget);
/// `strategies`: of a run that was only measured; else null. `held`: by libraries; null: not known.
Json to_json(const runlog::Report& report, const Json& strategies, const LibrariesPart* held);

// Texts of JSON, in which bytes that are no UTF-8 are replaced.

std::string line(const Json& json);
/// Indented, for standard output.
std::string dump(const Json& json);

}  // namespace pinion::cli
