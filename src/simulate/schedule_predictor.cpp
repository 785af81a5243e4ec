#include "simulate/schedule_predictor.h"

#include <algorithm>

namespace pinion {

void Schedule::add(std::size_t thread, Time time, Range range, std::uint64_t site) {
  const Range pages = range.to_pages();
  const auto number = static_cast<std::uint32_t>(buffers_.size());
  const std::uint32_t buffer = buffers_.try_emplace({pages.begin, pages.end}, number).first->second;
  uses_[thread].push_back({time, buffer, site, range.begin});
  if (buffer == times_.size()) times_.emplace_back();
  std::vector<Times>& of = times_[buffer];
  if (of.empty() || of.back().thread != thread) of.push_back({static_cast<std::uint16_t>(thread), {}, {}});
  of.back().times.push_back(time);
  of.back().positions.push_back(uses_[thread].size() - 1);
}

std::optional<std::uint32_t> Schedule::buffer_of(Range pages) const {
  const auto found = buffers_.find({pages.begin, pages.end});
  if (found == buffers_.end()) return std::nullopt;
  return found->second;
}

SchedulePredictor::SchedulePredictor(const char* name, std::shared_ptr<const Schedule> schedule)
    : name_(name), schedule_(std::move(schedule)), threads_(schedule_->threads()) {}

const SchedulePredictor::Anchor& SchedulePredictor::Thread::by(Time moment) const {
  std::size_t back = 0;
  while (back + 1 < anchors.size() && back < seen && at(back).known > moment) ++back;
  return at(back);
}

std::optional<std::size_t> SchedulePredictor::locate(const Use& use) const {
  const Thread& thread = threads_[use.thread];
  const auto& uses = schedule_->uses(use.thread);
  const std::size_t next = thread.latest().next;
  for (std::size_t at = next > kDisorder ? next - kDisorder : 0; at < uses.size(); ++at) {
    const bool seen = at < thread.was_seen.size() && thread.was_seen[at];
    if (!seen && uses[at].site == use.site && uses[at].address == use.address) return at;
  }
  return std::nullopt;
}

Observed SchedulePredictor::observe(const Use& use) {
  // Retention can prepare for a use only once the one before is over.
  const Time over = use.buffer < over_.size() ? over_[use.buffer] : 0;
  const Time moment = std::max(use.time - use.lead, over);
  const Time foreseen = next_use(use.buffer, use.last,
                                 [&](const Thread& thread) -> const Anchor& { return thread.by(moment); });
  follow(use);
  return {foreseen, next_use(use.buffer, use.time)};
}

void SchedulePredictor::follow(const Use& use) {
  const std::optional<std::size_t> found = locate(use);
  if (!found) return;
  Thread& thread = threads_[use.thread];
  const Schedule::Use& planned = schedule_->uses(use.thread)[*found];
  const std::size_t next = std::max(thread.latest().next, *found + 1);
  thread.was_seen.resize(schedule_->uses(use.thread).size());
  thread.was_seen[*found] = true;
  ++thread.seen;
  thread.anchors[thread.seen % thread.anchors.size()] = {use.end, next, use.time - planned.time};
  if (use.buffer >= known_as_.size()) known_as_.resize(use.buffer + std::size_t{1}, kUnknown);
  known_as_[use.buffer] = planned.buffer;
  over_.resize(known_as_.size(), 0);
  over_[use.buffer] = use.end;
}

template <class AnchorOf>
Time SchedulePredictor::next_use(BufferId buffer, Time after, AnchorOf&& anchor_of) const {
  if (buffer >= known_as_.size() || known_as_[buffer] == kUnknown) return kNever;
  Time earliest = kNever;
  for (const auto& [thread, times, positions] : schedule_->times(known_as_[buffer])) {
    const Anchor& anchor = anchor_of(threads_[thread]);
    // Only unseen uses count: `after` may lie before a seen one, by the thread's waits since.
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

void SchedulePredictor::forget(BufferId buffer) {
  if (buffer < known_as_.size()) known_as_[buffer] = kUnknown;
}

}  // namespace pinion
