#include "lease/meter.h"

#include <new>

namespace pinion {

void DomainMeter::program_registers(Range pages, Time now) {
  const MutexLock lock(mutex_);
  advance(now);
  ++for_peers_;
  pages_for_peers_ += pages.pages();
  count_programs(pages, true);
}

void DomainMeter::program_was_refused(Range pages, Time now) {
  const MutexLock lock(mutex_);
  advance(now);
  --for_peers_;
  pages_for_peers_ -= pages.pages();
  count_programs(pages, false);
}

void DomainMeter::program_deregisters(Range pages, Time now) {
  const MutexLock lock(mutex_);
  advance(now);
  count_programs(pages, false);
}

void DomainMeter::count_programs(Range pages, bool more) {
  try {
    more ? programs_.add(pages) : programs_.remove(pages);
  } catch (const std::bad_alloc&) {
    // The figure lacks a registration; the program goes on.
  }
}

}  // namespace pinion
