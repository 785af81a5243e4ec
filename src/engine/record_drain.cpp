#include "engine/record_drain.h"

#include <algorithm>

#include "engine/thread_context.h"

namespace pinion {

void RecordDrain::start(std::uint64_t dropped, Duration poll) {
  dropped_seen_ = dropped;
  looks_ = LookSchedule(poll, clock_.now());
}

void RecordDrain::collect() {
  batch_.clear();
  // Before the rings: a use that preceded the loss of its memory is then in this batch too, or in an earlier
  // one.
  events_lost_ = false;
  EventBoard::Event event;
  while (events_.take(event, events_lost_)) {
    Drained drained{};
    drained.record.kind = runlog::EventKind::memory_event;
    drained.record.begin = drained.record.end = event.time;
    drained.record.address = event.range.begin;
    drained.record.bytes = event.range.bytes();
    batch_.push_back(drained);
  }
  dropped_ = 0;
  fullest_ = 0;
  for (ThreadContext* thread = all_threads(); thread; thread = thread->next) {
    Drained drained;
    drained.thread = thread->index;
    const std::size_t before = batch_.size();
    while (thread->ring.pop(drained.record)) batch_.push_back(drained);
    fullest_ = std::max(fullest_, batch_.size() - before);
    dropped_ += thread->ring.dropped();
  }
}

void RecordDrain::drain() {
  collect();
  if (events_lost_) take_memory_change({0, ~Address{0}}, clock_.now());
  // Rings are in order of each thread; together they are put in order of time.
  std::stable_sort(batch_.begin(), batch_.end(),
                   [](const Drained& a, const Drained& b) { return a.record.end < b.record.end; });
  for (Drained& drained : batch_) take(drained.record, drained.thread);

  const Time now = clock_.now();
  looks_.pace(fullest_ > decltype(ThreadContext::ring)::capacity() / 4);
  if (!batch_.empty()) looks_.found(now);
  look_after_loss();
}

void RecordDrain::look_after_loss() {
  if (dropped_ == dropped_seen_) return;
  dropped_seen_ = dropped_;
  domains_.for_each([](DomainSlot& slot) {
    if (slot.retention) slot.retention->sweep();
  });
}

void RecordDrain::take(Record& record, std::uint16_t thread) {
  const Calibration& scale = calibration();
  const Range range{record.address, record.address + record.bytes};
  const Time begin = scale.to_time(record.begin), end = scale.to_time(record.end);
  CostEstimates& costs = domains_.slot(record.domain).costs;
  switch (record.kind) {
    case runlog::EventKind::lease:
      take_use(record, thread);
      break;
    case runlog::EventKind::registration:
      if (!(record.flags & runlog::kFailed)) costs.registration.observe(range.pages(), end - begin);
      break;
    case runlog::EventKind::deregistration:
      if (!(record.flags & runlog::kFailed)) costs.deregistration.observe(range.pages(), end - begin);
      break;
    case runlog::EventKind::memory_event:
      take_memory_change(range, end);
      return;
    case runlog::EventKind::none:
      return;
  }
  log_.add(record, thread);
}

void RecordDrain::take_use(Record& record, std::uint16_t thread) {
  const Calibration& scale = calibration();
  DomainSlot& slot = domains_.slot(record.domain);
  const Range pages = Range{record.address, record.address + record.bytes}.to_pages();
  const Duration waited = scale.to_duration(record.wait), delayed = scale.to_duration(record.delayed);
  Duration first = 0;  // what leave-pinned would have waited
  Coverage& leave_pinned = leave_pinned_[record.domain];
  if (const std::size_t fresh = leave_pinned.would_add(pages)) {
    const Duration expected = slot.costs.registration.expected(fresh / page_size());
    leave_pinned_registration_ns_ += static_cast<double>(expected);
    first =
        leave_pinned_wait(waited, expected, static_cast<double>(fresh) / static_cast<double>(pages.bytes()));
    leave_pinned.add(pages);
    events_.mark(pages);  // for those that registered nothing (MemoryWatch::watch())
  }
  ++transfers_;
  budget_.waited(std::size_t{thread} * kMostDomains + record.domain, delayed + waited, first);
  if (slot.retention && learns_)
    slot.retention->use(record, scale.to_time(record.begin), thread, delayed, scale.to_time(record.end),
                        waited);
}

void RecordDrain::take_memory_change(Range range, Time time) {
  const Range pages{page_floor(range.begin),
                    range.end > ~Address{0} - page_size() ? range.end : page_ceil(range.end)};
  for (Coverage& of_domain : leave_pinned_) of_domain.erase(pages);
  domains_.for_each([&](DomainSlot& slot) {
    if (slot.retention) slot.retention->memory_event(pages);
  });
  log_.add_memory_event(range, time);
}

std::size_t RecordDrain::leave_pinned_bytes() const {
  std::size_t bytes = 0;
  for (const Coverage& of_domain : leave_pinned_) bytes += of_domain.bytes();
  return bytes;
}

}  // namespace pinion
