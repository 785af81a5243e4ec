#include "helper/record_drain.h"

#include <algorithm>
#include <utility>

#include "lease/thread_context.h"

namespace pinion {

void RecordDrain::collect() {
  batch_.clear();
  // Events are read before the rings: a use that preceded the loss of its memory is then in this batch too,
  // or in an earlier one.
  events_lost_ = false;
  EventBoard::Event event;
  while (events_.take(event, events_lost_)) batch_.push_back({memory_event_at(event.time, event.range), 0});
  dropped_ = 0;
  fullest_ = 0;
  waited_ = 0;
  const auto domains = static_cast<std::size_t>(domains_.count());
  for (ThreadContext* thread = all_threads(); thread; thread = thread->next) {
    const std::size_t before = batch_.size();
    for (Record record; thread->ring.pop(record);) batch_.push_back({record, thread->index});
    fullest_ = std::max(fullest_, batch_.size() - before);
    dropped_ += thread->ring.dropped();
    for (std::size_t i = 0; i < domains; ++i) {
      const ThreadCounters& counters = thread->counters[i];
      waited_ += counters.delayed_ticks.get() - counters.copied_ticks.get();
    }
  }
}

void RecordDrain::drain() {
  collect();
  desk_.time_budget().waited(calibration().to_duration(waited_));
  if (events_lost_) take({memory_event_at(clock_.ticks(), {0, ~Address{0}}), 0});
  // Rings are in order of each thread; together they are put in order of time.
  std::stable_sort(batch_.begin(), batch_.end(),
                   [](const TakenRecord& a, const TakenRecord& b) { return a.record.end < b.record.end; });
  const bool lost = std::exchange(dropped_seen_, dropped_) != dropped_;
  domains_.for_each([lost](const DomainSlot& slot) { slot.kept.retention->note_losses(lost); });
  for (const TakenRecord& taken : batch_) take(taken);

  desk_.pace(fullest_ > decltype(ThreadContext::ring)::capacity() / 4);
  if (!batch_.empty()) desk_.found(clock_.now());
  if (lost) desk_.sweep();
}

void RecordDrain::take(const TakenRecord& taken) {
  const Record& record = taken.record;
  if (record.kind == runlog::EventKind::none) return;
  if (record.kind == runlog::EventKind::lease) ++transfers_;
  const Range range{record.address, record.address + record.bytes};
  if (record.kind == runlog::EventKind::memory_event) forget(pages_touched(range));
  const bool registered =
      record.kind == runlog::EventKind::registration && (record.flags & runlog::kFailed) == 0;
  if (registered && record.page_bytes() != 0) large_.add({range, record.page_bytes()});
  if (const KeptDomain& kept = domains_.slot(record.domain).kept; registered && kept.gains_by_hugepages)
    births_.registered(range, record.begin, kept.gains_wholly);
  keep(desk_.take(taken, leave_pinned(record)));
}

void RecordDrain::take_runs() {
  domains_.for_each([this](const DomainSlot& slot) {
    for (const runlog::Event& run : slot.kept.retention->take_runs()) {
      transfers_ += run.count;
      keep(run);
    }
  });
}

void RecordDrain::end_runs(Time now) {
  domains_.for_each([now](const DomainSlot& slot) { slot.kept.retention->end_runs(now); });
  take_runs();
}

void RecordDrain::keep(runlog::Event event) {
  runlog::note_pages(event, [this](Range range) { return large_.around(range); });
  log_.add(event);
}

void RecordDrain::forget(Range pages) {
  large_.erase(pages);
  for (Coverages<2>& of_domain : pages_) {
    of_domain.erase<kLeavePinned>(pages);
    of_domain.erase<kNeeded>(pages);
  }
  Duration foreseen = 0;
  for (ForeseenWaits& of_domain : foreseen_) foreseen += of_domain.erase(pages);
  leave_pinned_registration_ns_ -= static_cast<double>(foreseen);
  desk_.time_budget().leave_pinned_waited(-foreseen);
}

UnderLeavePinned RecordDrain::leave_pinned(const Record& record) {
  const bool lease = record.kind == runlog::EventKind::lease;
  if (!lease && record.kind != runlog::EventKind::registration) return {};
  const Range range{record.address, record.address + record.bytes};
  const LargeRange large = large_.around(range);
  const Range pages = large.empty() ? range.to_pages() : large.range;
  Coverages<2>& known = pages_[record.domain];
  UnderLeavePinned effect{.fresh_bytes = known.would_add<kLeavePinned>(pages)};
  if (effect.fresh_bytes == 0) return effect;
  const bool failed = (record.flags & runlog::kFailed) != 0;
  const bool first = !failed && known.would_add<kNeeded>(pages) == effect.fresh_bytes;
  if (!failed) known.add<kNeeded>(pages);
  const CostEstimates& costs = domains_.slot(record.domain).kept.costs;
  const auto of_it = [&](Ticks waited) {
    return leave_pinned_wait(
        calibration().to_duration(waited),
        costs.registration.expected(costs.entries_a_page.of(effect.fresh_bytes / page_size())),
        static_cast<double>(effect.fresh_bytes) / static_cast<double>(pages.bytes()));
  };
  if (lease) {
    known.add<kLeavePinned>(pages);
    events_.mark(pages);  // for those that registered nothing (MemoryWatch::watch())
    effect.all_bytes = known.bytes<kLeavePinned>();
    effect.wait = of_it(record.wait) - foreseen_[record.domain].take(pages);
  } else if (first) {
    effect.wait = of_it(record.end - record.begin);
    foreseen_[record.domain].add(pages, effect.wait);
  }
  leave_pinned_registration_ns_ += static_cast<double>(effect.wait);
  return effect;
}

}  // namespace pinion
