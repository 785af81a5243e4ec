// The marks that a program leaves on memory beside its contents, as the kernel shows them.
#pragma once

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

#include "base/range.h"

namespace pinion::test {

/// The marks by the names in /proc/self/smaps: left out of dumps and of children, wiped for them, locked,
/// merged with others, without hugepages, read at random or in sequence.
inline std::string marks_at(const char* at) {
  std::ifstream smaps("/proc/self/smaps");
  std::string marks;
  bool there = false;
  for (std::string line; std::getline(smaps, line);) {
    Range mapping;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &mapping.begin, &mapping.end) == 2)
      there = mapping.contains(Range::of(at, 1));
    if (!there || !line.starts_with("VmFlags:")) continue;
    for (const char* mark : {"dd", "dc", "wf", "lo", "mg", "nh", "rr", "sr"})
      if (line.find(std::string(" ") + mark) != line.npos) marks += mark;
  }
  return marks;
}

}  // namespace pinion::test
