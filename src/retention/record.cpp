#include "retention/record.h"

#include <algorithm>

namespace pinion {

namespace {

constexpr std::uint64_t kMostBytes = (std::uint64_t{1} << 56) - 1;  // Record::bytes

}  // namespace

Record memory_event_at(Ticks time, Range range) {
  Record record;
  record.begin = record.end = time;
  // "Everything" ends where addresses do; a call that the kernel refuses may name anything.
  record.address = std::min(range.begin, kAddressEnd);
  record.bytes = std::min<std::uint64_t>(std::clamp(range.end, record.address, kAddressEnd) - record.address,
                                         kMostBytes);
  record.kind = runlog::EventKind::memory_event;
  return record;
}

Record record_of(const DeviceCall& call, const Record& transfer) {
  Record record = transfer;
  record.begin = call.begin;
  record.end = call.end;
  record.address = call.pages.begin;
  record.bytes = call.pages.bytes();
  record.kind = call.registration ? runlog::EventKind::registration : runlog::EventKind::deregistration;
  record.flags = call.error ? runlog::kFailed : std::uint8_t{0};
  record.set_page_bytes(call.page_bytes);
  record.set_entries(call.entries);
  record.set_preempted(call.preempted);
  return record;
}

runlog::Event event_of(const TakenRecord& taken, const Calibration& scale) {
  const Record& record = taken.record;
  runlog::Event event{};
  event.begin_ns = scale.to_time(record.begin);
  event.end_ns = scale.to_time(record.end);
  event.address = record.address;
  event.bytes = record.bytes;
  event.site = record.site;
  const bool lease = record.kind == runlog::EventKind::lease;
  event.wait_ns = static_cast<std::uint64_t>(lease ? scale.to_duration(record.wait) : record.preempted());
  event.peer = record.peer;
  event.thread = taken.thread;
  event.kind = record.kind;
  event.call = static_cast<std::uint8_t>(record.call);
  event.outcome = record.outcome;
  event.flags = record.flags;
  event.access = static_cast<std::uint8_t>(record.access) & 7U;
  event.domain = record.domain;
  return event;
}

}  // namespace pinion
