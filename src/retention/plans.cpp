#include "retention/plans.h"

#include <utility>

namespace pinion {

namespace {
// The first time after which a buffer is tried again that the kernel refused, or a use interrupted; each time
// twice as long.
constexpr Duration kAfterRefusal = 60 * kSecond, kAfterUse = kLongAgo;
constexpr int kInVain = 3;
// A device that has registered less often may never do so again.
constexpr int kRegistrations = 2;
// A stretch takes so many times its round trip at least.
constexpr int kWorthATrip = 3;
// The first stretch shows what a unit costs here: up to ten times the prior, where a machine's host has to
// find the memory. Later ones change that by such a part of the difference.
constexpr std::size_t kFirstUnits = 4;
constexpr int kSlowly = 4;
}  // namespace

void CollapsePlan::look(Buffer& buffer, Time now) const {
  Buffer::Collapsing& state = buffer.collapsing;
  if (state.done_to < units_of(buffer.pages).end || !is_dear(buffer.pages.pages(), buffer.entries)) return;
  state.done_to = 0;
  state.rent = 0;
  state.rest = std::max(kAfterRefusal, 2 * state.rest);
  state.again = now + state.rest;
}

Range CollapsePlan::part(const Buffer& buffer, const Ledger& ledger, const CostEstimates& costs,
                         Duration idle, Time now, bool goes) {
  if (now < buffer.collapsing.again || registrations_ < kRegistrations) return {};
  Range rest = rest_of(buffer);
  if (rest.empty()) return {};
  const Duration trip = goes ? 0 : round_trip(buffer, costs);
  if (buffer.collapsing.rent < ledger.worth_of_work(buffer.pages.pages(), cost(rest.bytes()) + trip))
    return {};
  if (!is_priced_) rest.end = std::min(rest.end, rest.begin + kFirstUnits * settings_.unit);
  // Each stretch costs a round trip.
  std::size_t least = units_for(kWorthATrip * trip) + settings_.unit;
  if (rest.bytes() < 2 * least) least = rest.bytes();
  const std::size_t most = std::min(rest.bytes(), units_for(idle / 2));
  if (most < least) return {};
  const std::size_t afforded = units_for(ledger.free_for_work() - trip);
  if (afforded < least) {
    saves_until_ = now + std::max(kAfterUse, 2 * buffer.longest_interval);
    return {};
  }
  return {rest.begin, rest.begin + std::min(most, afforded)};
}

void CollapsePlan::collapsed(Buffer& buffer, const Retention::Action& action, Duration dear, Time now) {
  const auto [bytes, made, took, refused] = action.collapsed;
  Buffer::Collapsing& state = buffer.collapsing;
  if (state.dear == 0) state.dear = dear;
  if (made >= settings_.unit && took > 0) {
    const double price = static_cast<double>(took) / static_cast<double>(made);
    a_byte_ += (price - a_byte_) / (std::exchange(is_priced_, true) ? kSlowly : 1);
  }
  if (bytes == action.collapse.bytes()) {
    state.done_to = action.collapse.end;
    return;
  }
  state.rest = std::max(refused || bytes == 0 ? kAfterRefusal : kAfterUse, 2 * state.rest);
  state.again = now + state.rest;
}

void CollapsePlan::registered(const Buffer& buffer, Duration took) {
  if (!collapses() || buffer.collapsing.dear == 0 || buffer.collapsing.done_to < units_of(buffer.pages).end)
    return;
  in_vain_ = std::max(-kInVain, in_vain_ + (took > buffer.collapsing.dear / 2 ? 1 : -1));
  if (in_vain_ == kInVain) gains_ = false;
}

}  // namespace pinion
