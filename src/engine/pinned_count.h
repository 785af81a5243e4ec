// How much memory the kernel counts as pinned in this process: VmPin and VmLck of /proc/self/status.
//
// Owns a descriptor of that file, open from open() to close(), because the helper reads it often: a
// descriptor that came and went each time could take a number that the program is about to use. One thread at
// a time; ordinary code.
#pragma once

#include <cstdint>

#include "base/kept_file.h"

namespace pinion {

class PinnedCount {
 public:
  void open();
  /// In bytes; 0 where the kernel does not show it.
  std::uint64_t read() const;
  void close() { file_.close(); }

 private:
  KeptFile file_;
};

}  // namespace pinion
