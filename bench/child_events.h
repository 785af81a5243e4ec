// Events in child processes, as the kernel counts them: page faults, and misses of the data TLB where the
// processor has a counter and the kernel shows it (virtual machines often lack one). One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/kept_file.h"

namespace pinion::cli {

/// Counts in processes that are forked from its making on, and in their children.
class ChildEvents {
 public:
  static ChildEvents page_faults();
  static ChildEvents tlb_misses();

  /// Returns the events of ended processes that were waited for, or nothing if they are not counted here.
  std::optional<double> count() const;

 private:
  ChildEvents(std::uint32_t type, std::uint64_t event);

  KeptFile counter_;
};

}  // namespace pinion::cli
