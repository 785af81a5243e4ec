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

void SchedulePredictor::observe(const Use& use) {
  Thread& thread = threads_[use.thread];
  const auto& uses = schedule_->uses(use.thread);
  // Records may be lost: the next one that it can be.
  const auto found = std::find_if(
      uses.begin() + static_cast<std::ptrdiff_t>(thread.next), uses.end(),
      [&](const Schedule::Use& due) { return due.site == use.site && due.address == use.address; });
  if (found == uses.end()) return;
  thread.next = static_cast<std::size_t>(found - uses.begin()) + 1;
  thread.shift = use.time - found->time;
  if (use.buffer >= known_as_.size()) known_as_.resize(use.buffer + std::size_t{1}, kUnknown);
  known_as_[use.buffer] = found->buffer;
}

Time SchedulePredictor::next_use(BufferId buffer, Time after) const {
  if (buffer >= known_as_.size() || known_as_[buffer] == kUnknown) return kNever;
  Time earliest = kNever;
  for (const auto& [thread, times, positions] : schedule_->times(known_as_[buffer])) {
    const Duration shift = threads_[thread].shift;
    // Not one that was seen already: `after` may lie before it, by what the thread has waited since.
    const auto unseen = std::lower_bound(positions.begin(), positions.end(), threads_[thread].next);
    const auto later =
        std::upper_bound(times.begin() + (unseen - positions.begin()), times.end(), after - shift);
    if (later != times.end()) earliest = std::min(earliest, *later + shift);
  }
  return earliest;
}

void SchedulePredictor::forget(BufferId buffer) {
  if (buffer < known_as_.size()) known_as_[buffer] = kUnknown;
}

}  // namespace pinion::simulate
