#include "retention/record.h"

#include <algorithm>

namespace pinion {

Record record_of(const DeviceCall& call, const Record& transfer) {
  Record record = transfer;
  record.begin = call.begin;
  record.end = call.end;
  record.address = call.pages.begin;
  record.bytes = call.pages.bytes();
  record.kind = call.registration ? runlog::EventKind::registration : runlog::EventKind::deregistration;
  record.flags = call.error ? runlog::kFailed : 0;
  return record;
}

runlog::Event event_of(const Record& record, const Calibration& scale) {
  runlog::Event event{};
  event.begin_ns = scale.to_time(record.begin);
  event.end_ns = scale.to_time(record.end);
  event.address = record.address;
  event.bytes = record.bytes;
  event.site = record.site;
  event.wait_ns = static_cast<std::uint64_t>(scale.to_duration(record.wait));
  event.peer = record.peer;
  event.thread = record.thread;
  event.kind = record.kind;
  event.call = static_cast<std::uint8_t>(record.call);
  event.outcome = record.outcome;
  event.flags = record.flags;
  event.access = static_cast<std::uint8_t>(record.access);
  event.domain = record.domain;
  if (event.kind == runlog::EventKind::memory_event) {
    // "Everything" ends where addresses do; a call that the kernel refuses may name anything.
    const Range range{record.address, record.address + record.bytes};
    event.address = std::min(range.begin, kAddressEnd);
    event.bytes = std::clamp<Address>(range.end, event.address, kAddressEnd) - event.address;
  }
  return event;
}

}  // namespace pinion
