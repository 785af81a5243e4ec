#include "simulate/node_terms.h"

#include <algorithm>

#include "simulate/random.h"

namespace pinion::simulate {

void Helpers::add(std::size_t process) {
  standings_.push_back({0, seed_of(settings_.seed, process)});
  look_at_.push_back(0);
}

std::function<Time(Time)> Helpers::turn_after(std::size_t process, std::size_t processes) const {
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

void Helpers::attend(std::size_t number, Process& process) {
  if (settings_.policy == PolicyKind::sleeping || process.acquires() < look_at_[number]) return;
  look_at_[number] = process.acquires() + settings_.policy_every;
  standings_[number].need = process.left_pinned_bytes();
  const node::Terms terms =
      node::terms_of(settings_.policy, standings_, number, idle_cores_, settings_.time_slices);
  process.set_helper(terms.helper, terms.turn);
}

std::pair<std::unique_ptr<node::NodeTable>, std::uint64_t> NodeLimit::enter() {
  if (!given()) return {nullptr, process_limit_};
  auto room = std::make_unique<node::NodeTable>();
  // Processes beyond the table's places keep to an equal part, as in a run.
  if (room->join(file_, limit_, ++entered_)) return {nullptr, std::min(process_limit_, limit_ / ranks_)};
  return {std::move(room), std::min(process_limit_, limit_)};
}

bool tells_ranks_apart(const Settings& settings, std::uint64_t ranks) {
  const bool limited = traits_of(settings.retention).registers && settings.node_limit > 0;
  return limited || Helpers(settings, ranks).tell_ranks_apart();
}

TimeBudget::Settings budget_of(const Settings& settings, std::uint64_t ranks) {
  TimeBudget::Settings budget{.share = settings.time_budget, .core_idle = true};
  if (settings.cores > 0) {
    budget.delay = TimeBudget::delay_of(static_cast<double>(ranks), settings.cores);
    budget.core_idle = ranks < static_cast<std::uint64_t>(settings.cores);
  }
  return budget;
}

}  // namespace pinion::simulate
