// Events of run logs, made by hand, and files with one process's log.
#pragma once

#include "runlog/reader.h"
#include "runlog/writer.h"
#include "temporary_directory.h"

namespace pinion::runlog {

/// The log of a file that has one.
inline Error read_log(const std::string& path, Log& log) {
  log = {};
  return for_each_log({path}, [&](Log&& found) { log = std::move(found); });
}

inline Event lease(Time begin, Time end, std::uint64_t address, std::uint64_t bytes, std::uint64_t site = 0,
                   Outcome outcome = Outcome::hit) {
  Event e{};
  e.kind = EventKind::lease;
  e.begin_ns = begin;
  e.end_ns = end;
  e.address = address;
  e.bytes = bytes;
  e.site = site;
  e.outcome = outcome;
  e.peer = -1;
  return e;
}

inline Event event(EventKind kind, Time begin, Time end, std::uint64_t address, std::uint64_t bytes) {
  Event e{};
  e.kind = kind;
  e.begin_ns = begin;
  e.end_ns = end;
  e.address = address;
  e.bytes = bytes;
  e.peer = -1;
  return e;
}

}  // namespace pinion::runlog
