// The figures of one process, from the counters and state that its log kept, and their sums over processes.
// Pure functions; any thread.
#pragma once

#include <vector>

#include "runlog/analysis.h"
#include "runlog/memory_lines.h"

namespace pinion::runlog {

RankReport rank_report(const Log& log, const MemoryLines& lines);
std::vector<DomainReport> domains_of(const Log& log);
/// The mean of so many ranks, whose counters are summed up; `refused` is their sum.
TimeBudgetUse budget_of(const Counters& counters, double ranks = 1);
KeyUse keys_of(const Counters& counters);
PassedOn passed_of(const Counters& counters);
HelpersHugepages hugepages_of(const Counters& counters);

Cost operator+(const Cost& a, const Cost& b);
Cost operator/(const Cost& a, double n);
/// Adds the same domain of another process; the fit is of the one with most registrations.
void add_domain(DomainReport& sum, const DomainReport& domain);

}  // namespace pinion::runlog
