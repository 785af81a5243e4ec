#include "simulate/schedule_predictor.h"

#include <algorithm>
#include <map>

namespace pinion::simulate {

Schedule::Schedule(const std::vector<std::unique_ptr<Script>>& scripts, Time start) : uses_(scripts.size()) {
  std::map<std::pair<Address, Address>, std::uint32_t> buffers;
  for (std::size_t thread = 0; thread < scripts.size(); ++thread) {
    Time time = start;
    for (Operation operation; scripts[thread]->next(operation);) {
      time += operation.compute + operation.transfer;
      if (operation.kind != Operation::Kind::acquire) continue;
      const Range pages = operation.range.to_pages();
      const auto number = static_cast<std::uint32_t>(buffers.size());
      const std::uint32_t buffer = buffers.try_emplace({pages.begin, pages.end}, number).first->second;
      uses_[thread].push_back({time, buffer, operation.site, operation.range.begin});
      if (buffer == times_.size()) times_.emplace_back();
      std::vector<Times>& of = times_[buffer];
      if (of.empty() || of.back().thread != thread)
        of.push_back({static_cast<std::uint16_t>(thread), {}, {}});
      of.back().times.push_back(time);
      of.back().positions.push_back(uses_[thread].size() - 1);
    }
  }
}

SchedulePredictor::SchedulePredictor(const char* name, std::shared_ptr<const Schedule> schedule)
    : name_(name), schedule_(std::move(schedule)), threads_(schedule_->threads()) {}

const SchedulePredictor::Anchor& SchedulePredictor::Thread::by(Time moment) const {
  std::size_t back = 0;
  while (back + 1 < anchors.size() && back < seen && at(back).known > moment) ++back;
  return at(back);
}

void SchedulePredictor::observe(const Use& use) {
  Thread& thread = threads_[use.thread];
  const auto& uses = schedule_->uses(use.thread);
  // The first one not seen that it can be: records may be lost, or come in another order.
  thread.was_seen.resize(uses.size());
  const std::size_t next = thread.latest().next;
  auto found = uses.begin() + static_cast<std::ptrdiff_t>(next > kDisorder ? next - kDisorder : 0);
  const auto at = [&] { return static_cast<std::size_t>(found - uses.begin()); };
  while (found != uses.end() &&
         (thread.was_seen[at()] || found->site != use.site || found->address != use.address))
    ++found;
  if (found == uses.end()) return;
  thread.was_seen[at()] = true;
  ++thread.seen;
  thread.anchors[thread.seen % thread.anchors.size()] = {use.end, std::max(next, at() + 1),
                                                         use.time - found->time};
  if (use.buffer >= known_as_.size()) known_as_.resize(use.buffer + std::size_t{1}, kUnknown);
  known_as_[use.buffer] = found->buffer;
  over_.resize(known_as_.size(), 0);
  over_[use.buffer] = use.end;
}

template <class AnchorOf>
Time SchedulePredictor::next_use(BufferId buffer, Time after, AnchorOf&& anchor_of) const {
  if (buffer >= known_as_.size() || known_as_[buffer] == kUnknown) return kNever;
  Time earliest = kNever;
  for (const auto& [thread, times, positions] : schedule_->times(known_as_[buffer])) {
    const Anchor& anchor = anchor_of(threads_[thread]);
    // Not one that was seen already: `after` may lie before it, by what the thread has waited since.
    const auto unseen = std::lower_bound(positions.begin(), positions.end(), anchor.next);
    const auto later =
        std::upper_bound(times.begin() + (unseen - positions.begin()), times.end(), after - anchor.shift);
    if (later != times.end()) earliest = std::min(earliest, *later + anchor.shift);
  }
  return earliest;
}

Time SchedulePredictor::next_use(BufferId buffer, Time after) const {
  return next_use(buffer, after, [](const Thread& thread) -> const Anchor& { return thread.latest(); });
}

Time SchedulePredictor::predicted_at(BufferId buffer, Time last_use, Time moment) const {
  // Nothing can be done about the next use before the last one is over.
  if (buffer < over_.size()) moment = std::max(moment, over_[buffer]);
  return next_use(buffer, last_use, [&](const Thread& thread) -> const Anchor& { return thread.by(moment); });
}

void SchedulePredictor::forget(BufferId buffer) {
  if (buffer < known_as_.size()) known_as_[buffer] = kUnknown;
}

}  // namespace pinion::simulate
