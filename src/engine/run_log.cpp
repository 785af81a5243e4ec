#include "engine/run_log.h"

#include <algorithm>

#include "engine/site_names.h"

namespace pinion {

void RunLog::add_site(CallSite site) {
  if (!site || !known_sites_.insert(site).second) return;
  CallFrames frames;
  if (!call_site_frames(site, frames)) return;
  std::uint64_t addresses[kMaxCallFrames];
  std::copy_n(frames.return_addresses, frames.depth, addresses);
  writer_.add_site(site, addresses, frames.depth);
}

void RunLog::add(const Record& record, std::uint16_t thread) {
  if (!writer_.is_open()) return;
  add_site(record.site);
  const Calibration& scale = calibration();
  runlog::Event event{};
  event.begin_ns = scale.to_time(record.begin);
  event.end_ns = scale.to_time(record.end);
  event.address = record.address;
  event.bytes = record.bytes;
  event.site = record.site;
  event.wait_ns = static_cast<std::uint64_t>(scale.to_duration(record.wait));
  event.peer = record.peer;
  event.thread = thread;
  event.kind = record.kind;
  event.call = static_cast<std::uint8_t>(record.call);
  event.outcome = record.outcome;
  event.flags = record.flags;
  event.access = static_cast<std::uint8_t>(record.access);
  event.domain = record.domain;
  writer_.append(event);
}

void RunLog::add_memory_event(Range range, Time time) {
  runlog::Event event{};
  event.begin_ns = event.end_ns = time;
  // "Everything" ends where addresses do; a call that the kernel refuses may name anything.
  event.address = std::min(range.begin, kAddressEnd);
  event.bytes = std::clamp(range.end, event.address, kAddressEnd) - event.address;
  event.kind = runlog::EventKind::memory_event;
  event.peer = -1;
  writer_.append(event);
}

void RunLog::add_device_call(int domain, Range pages, bool registration, const Error& error, Time begin,
                             Time end) {
  runlog::Event event{};
  event.begin_ns = begin;
  event.end_ns = end;
  event.address = pages.begin;
  event.bytes = pages.bytes();
  event.peer = -1;
  event.kind = registration ? runlog::EventKind::registration : runlog::EventKind::deregistration;
  event.flags = static_cast<std::uint8_t>(runlog::kByHelper | (error ? runlog::kFailed : 0));
  event.domain = static_cast<std::uint8_t>(domain);
  writer_.append(event);
}

void RunLog::publish(const runlog::Counters& counters, Time now) {
  meter_.read(now, [&](const runlog::Series& series, std::int64_t, std::int64_t) {
    writer_.update(counters, series, now);
  });
}

void RunLog::finish(const runlog::Counters& counters, Time now, std::uint64_t pinned) {
  writer_.for_each_site([](runlog::SiteEntry& site) { name_site(site); });
  meter_.read(now, [&](const runlog::Series& series, std::int64_t, std::int64_t) {
    writer_.finish(counters, series, now, pinned);
  });
}

}  // namespace pinion
