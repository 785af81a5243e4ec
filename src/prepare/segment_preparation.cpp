#include "prepare/segment_preparation.h"

#include <algorithm>
#include <exception>

namespace pinion {

namespace {

/// Blocks that come within this time share a segment.
constexpr Duration kSettles = 2 * kMillisecond;
constexpr Duration kBetweenLooks = kMillisecond;
/// A request that waits for a registration lets it take twice as long: its own would be made twice.
constexpr Duration kLeastExpected = 10 * kMillisecond;
/// Memory events may not all be seen yet; it looks again after this time.
constexpr Duration kUntilSeen = 50 * kMillisecond;

}  // namespace

Time SegmentPreparation::attend(Time now) {
  if (rung_.exchange(false, std::memory_order_acq_rel) && due_ == kNever) due_ = now + kSettles;
  if (!on_) return kNever;
  if (work_ != nullptr && !work_->wait(0)) return now + kBetweenLooks;
  if (work_ == nullptr && now < due_) return due_;
  const std::optional<int> number = domain();
  if (!number) return now + kBetweenLooks;
  if (*number >= 0 && !leases_.may_open_segments(*number)) return now + kUntilSeen;
  if (work_ != nullptr) on_ = register_present(*number);
  due_ = kNever;
  if (on_ && *number >= 0) prepare_next(*number);
  return work_ != nullptr ? now + kBetweenLooks : kNever;
}

std::optional<int> SegmentPreparation::domain() const {
  if (leases_.stopped()) return -1;
  const bool serves_peers = leases_.segments_serve_peers();
  return leases_.domains().first_open([&](const DomainSlot& slot) {
    return !slot.kept.observed && !slot.domain->registers_bytes() &&
           (serves_peers || !slot.device->capabilities().remote);
  });
}

void SegmentPreparation::prepare_next(int number) {
  for (;;) {
    const Range wanted = arena_.devices().take_wanted();
    if (wanted.empty()) return;
    if (!heap_.cut_unused(wanted.begin)) continue;  // its blocks have gone
    segment_ = arena_.devices().at(wanted.begin);
    if (segment_.empty() || !has_room(segment_)) continue;
    Error error;
    try {
      work_ = Preparation::start(leases_, number, {},
                                 {.ranges = {segment_}, .access = Access::write, .registers = false}, error);
    } catch (const std::exception&) {
      // A request registers it.
    }
    if (work_ != nullptr) return;
  }
}

bool SegmentPreparation::has_room(Range segment) const {
  const Budget& budget = leases_.budget();
  return segment.bytes() <= budget.most_bytes() - std::min(budget.bytes(), budget.most_bytes());
}

/// False: the device has refused.
bool SegmentPreparation::register_present(int number) {
  const bool is_present = !work_->state().error;
  work_.reset();
  ThreadContext* const thread = this_thread();
  if (!is_present || number < 0 || thread == nullptr || !has_room(segment_)) return true;
  const CostEstimates& costs = leases_.domains().slot(number).kept.costs;
  const Duration expected =
      std::max(kLeastExpected, costs.registration.expected(costs.entries_a_page.of(segment_.pages())));
  return leases_.prepare_segment(*thread, number, segment_, expected);
}

void SegmentPreparation::end() {
  arena_.devices().tell(nullptr);
  on_ = false;
  work_.reset();
}

}  // namespace pinion
