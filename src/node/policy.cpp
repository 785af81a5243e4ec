#include "node/policy.h"

#include <algorithm>
#include <tuple>

namespace pinion::node {

namespace {

/// Counts the processes that come before `self`, the largest need first.
std::size_t place_by_need(const std::vector<Standing>& processes, std::size_t self) {
  const auto key = [&](std::size_t i) { return std::make_tuple(processes[i].need, processes[i].tie, i); };
  std::size_t before = 0;
  for (std::size_t i = 0; i < processes.size(); ++i) before += key(i) > key(self);
  return before;
}

}  // namespace

Terms terms_of(PolicyKind policy, const std::vector<Standing>& processes, std::size_t self, int idle_cores,
               TimeSlices slices) {
  Terms terms;
  if (policy == PolicyKind::sleeping) return terms;
  terms.helper = idle_cores > 0;
  if (!terms.helper || policy == PolicyKind::none_if_busy) return terms;
  const auto cores = static_cast<std::size_t>(idle_cores);
  if (policy == PolicyKind::aggressive) {
    // The cores share the helpers evenly: the first ones have one helper more.
    const std::size_t core = self % cores;
    const auto on_core = static_cast<Duration>((processes.size() + cores - 1 - core) / cores);
    terms.idle_core = static_cast<int>(core);
    if (on_core > 1) terms.turn = on_core * (slices.slice + slices.context_switch);
    return terms;
  }
  const std::size_t place = place_by_need(processes, self);
  terms.helper = place < cores;
  if (terms.helper) terms.idle_core = static_cast<int>(place);
  return terms;
}

std::uint64_t fair_share(const std::vector<Standing>& processes, std::size_t self, std::uint64_t limit) {
  double sum = 0;
  for (const Standing& process : processes) sum += static_cast<double>(process.need);
  const auto need = static_cast<double>(processes[self].need);
  if (sum <= static_cast<double>(limit)) return processes[self].need;
  return static_cast<std::uint64_t>(static_cast<double>(limit) * (need / sum));
}

}  // namespace pinion::node
