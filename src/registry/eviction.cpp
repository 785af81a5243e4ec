#include "registry/eviction.h"

#include <algorithm>
#include <utility>

namespace pinion {

std::vector<Region*> Eviction::for_request(Range want) {
  if (!admission_.could_ever_fit(want)) return {};
  const std::uint64_t others = admission_.held_by_others();
  const bool for_goal = admission_.within_limits(want);
  if (!for_goal) table_.note_shortage();
  std::vector<Region*> victims =
      until([&](const auto& gone) { return admission_.fits(want, others, gone); }, kAnyTime);
  if (for_goal)
    for (const Region* victim : victims)
      context_.budget->peak_goal().spend(table_.victims().pages_to_register(victim));
  return victims;
}

bool Eviction::raise_peak_goal(Range want) {
  Budget& budget = *context_.budget;
  if (!budget.peak_goal().pursued() || admission_.fits(want) || !admission_.within_limits(want)) return false;
  const auto held = [&, others = admission_.held_by_others()] {
    return others + table_.reserved_bytes() + table_.unreserved(want);
  };
  const std::uint64_t all = held();
  std::uint64_t least = all;
  until(
      [&](const auto&) {
        least = held();
        return false;
      },
      kAnyTime);
  budget.raise_peak_goal(least > budget.desired_bytes() ? least : all);
  return true;
}

std::vector<Region*> Eviction::of_bytes(std::uint64_t bytes) {
  std::vector<Region*> victims;
  add_of_bytes(bytes, victims);
  return victims;
}

std::vector<Region*> Eviction::to_shrink(std::uint64_t bytes, std::uint64_t regions) {
  const Budget& budget = *context_.budget;
  std::vector<Region*> victims;
  const std::uint64_t held = budget.bytes();
  if (held > bytes) add_of_bytes(held - bytes, victims);
  while (budget.regions() - victims.size() > regions) {
    const std::size_t before = victims.size();
    add_of_bytes(1, victims);
    if (victims.size() == before) break;
  }
  return victims;
}

std::vector<Region*> Eviction::for_swap(Range pages, Time use, Time back) {
  const std::uint64_t others = admission_.held_by_others();
  if (admission_.fits(pages, others)) return {};
  if (!admission_.within_limits(pages)) table_.note_shortage();
  bool needed_soon = false;
  const auto enough = [&](const std::vector<Region*>& gone) {
    const Time next_use = gone.back()->next_use.load(std::memory_order_relaxed);
    needed_soon |= next_use != 0 && next_use <= back;
    // The last candidates would go at the use anyway.
    return admission_.fits(pages, others, gone) && (!needed_soon || gone.size() == table_.count());
  };
  return until(enough, use);
}

std::vector<Region*> Eviction::for_swap(std::uint64_t bytes, Time back) {
  const Budget& budget = *context_.budget;
  const std::uint64_t others = admission_.held_by_others();
  const auto fit = [&](std::uint64_t most, std::size_t gone) {
    return others + table_.reserved_bytes() + bytes <= most &&
           budget.regions() - gone < budget.most_regions();
  };
  if (fit(budget.desired_bytes(), 0)) return {};
  if (!fit(budget.most_bytes(), 0)) table_.note_shortage();
  return until([&](const auto& gone) { return fit(budget.desired_bytes(), gone.size()); }, back);
}

Region* Eviction::to_trim(std::uint64_t keep_bytes) {
  if (table_.reserved_bytes() <= keep_bytes + trimming_) return nullptr;
  const std::vector<Region*> victims = of_bytes(1);
  if (victims.empty()) return nullptr;
  victims[0]->place.trimmed = true;
  trimming_ += victims[0]->range().bytes();
  return victims[0];
}

void Eviction::retired(Region* region) {
  if (std::exchange(region->place.trimmed, false)) trimming_ -= region->range().bytes();
}

template <class Fits>
std::vector<Region*> Eviction::until(Fits&& fits, Time not_before) {
  table_.feel_pressure();
  Victims& victims = table_.victims();
  // Regions overlap each other and the wanted range, so only the union of pages shows the gain of letting
  // them go. They leave it for the calculation.
  std::vector<Region*> chosen;
  bool enough = false;
  do {
    Region* region = victims.take(context_.clock.ticks());
    if (!region) break;
    const Time next_use = region->next_use.load(std::memory_order_relaxed);
    if (next_use != 0 && next_use <= not_before) {  // and all others are expected sooner
      victims.put_back(region);
      break;
    }
    chosen.push_back(region);
    table_.take_out(region->range());
    enough = fits(chosen);
  } while (!enough);
  for (Region* region : chosen) {
    table_.put_back(region->range());
    if (!enough) victims.put_back(region);
  }
  if (!enough) return {};
  std::erase_if(chosen, [this](Region* region) { return !claim(region); });
  return chosen;
}

bool Eviction::claim(Region* region) {
  if (!retirement_.claim(region)) {
    table_.victims().put_back(region);
    return false;
  }
  table_.victims().remember(region);
  return true;
}

void Eviction::add_of_bytes(std::uint64_t bytes, std::vector<Region*>& victims) {
  table_.feel_pressure();
  table_.note_shortage();
  while (bytes > 0) {
    Region* region = table_.victims().take(context_.clock.ticks());
    if (!region) return;
    if (!claim(region)) continue;
    victims.push_back(region);
    bytes -= std::min<std::uint64_t>(bytes, region->range().bytes());
  }
}

}  // namespace pinion
