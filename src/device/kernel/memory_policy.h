// The NUMA policy by which a thread's faults choose memory. The first touch of a page decides its node, so a
// thread that faults memory in for another one does it by the other's policy. A policy of the memory itself
// (mbind) comes first in the kernel anyhow.
//
// A value; ordinary code of any thread. Raw system calls: libnuma may be missing.
#pragma once

#include <array>
#include <cstddef>

#include "base/range.h"

namespace pinion {

class MemoryPolicy {
 public:
  /// Leaves a thread's policy as it is.
  MemoryPolicy() = default;

  /// The calling thread's. "Local" becomes the node that the thread runs on, first. On a machine of one node,
  /// and where the kernel refuses the answer, the result changes nothing.
  static MemoryPolicy of_this_thread();
  /// Gives it to the calling thread.
  void apply() const;

  bool changes_nothing() const { return mode_ < 0; }

 private:
  friend void prefer_node(Range pages, int node);
  static constexpr std::size_t kMostNodes = 1024;
  static constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);

  /// The node first, then others.
  void prefer(unsigned node);

  int mode_ = -1;
  std::array<unsigned long, kMostNodes / kWordBits> nodes_{};
};

/// Lets faults in the range take memory of the node first. A policy that the calling thread has from its
/// program stays in force. Whole pages, not touched yet.
void prefer_node(Range pages, int node);

/// Nodes that have memory; 1 where the kernel does not say.
unsigned memory_nodes();

}  // namespace pinion
