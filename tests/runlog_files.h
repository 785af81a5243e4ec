// Run logs made by hand, for tests.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "runlog/reader.h"
#include "runlog/writer.h"

namespace pinion::runlog {

/// A directory that goes away with its owner.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "pinion-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

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
