#include "lease/peer_holds.h"

namespace pinion {

namespace {

Record hold_event(const PeerHold& hold, runlog::EventKind kind) {
  Record record;
  record.begin = record.end = ticks_now();
  record.address = hold.pages.begin;
  record.bytes = hold.pages.bytes();
  record.kind = kind;
  record.domain = static_cast<unsigned>(hold.domain);
  return record;
}

}  // namespace

Error PeerHolds::begin(ThreadContext& thread, int number, Range pages, Access access, PeerHold& hold) {
  if (!is_possible(pages)) return Error::make(EFAULT, "no memory can be there");
  Record registering;
  registering.domain = static_cast<unsigned>(number);
  const AcquireResult result = steps_.run(thread, {.pages = pages, .access = access}, registering);
  if (!result.region) return result.error;
  hold = {registering.region(), pages, number};
  Domain& domain = domains_.domain(number);
  const bool held = domain.begin_hold(hold.region);
  if (domain.release(hold.region.region) == RegionWord::Released::idle_doomed) {
    watch_.idle_and_doomed(pages.bytes());
    retirement_.reap(thread, number);
  }
  if (!held) return Error::make(EBUSY, "the memory is changing, or memory events may be missed now");
  trail_.push(thread, hold_event(hold, runlog::EventKind::hold_begin));
  return {};
}

void PeerHolds::end(ThreadContext& thread, const PeerHold& hold) {
  const auto released = domains_.domain(hold.domain).end_hold(hold.region.region);
  trail_.push(thread, hold_event(hold, runlog::EventKind::hold_end));
  if (released == RegionWord::Released::idle) retirement_.retire(thread, hold.domain, hold.region);
  if (released == RegionWord::Released::idle_doomed) retirement_.reap(thread, hold.domain);
}

}  // namespace pinion
