// Reads how much memory the kernel counts as pinned in this process: VmPin and VmLck of /proc/self/status.
//
// Owns a descriptor of that file, open from open() to close(), because the helper reads it often. One thread
// at a time; ordinary code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/kept_text.h"

namespace pinion {

class PinnedCount {
 public:
  void open();
  /// The bytes; 0 where the kernel does not show them.
  std::uint64_t read() const;
  void close() { file_.close(); }

 private:
  KeptText file_;
};

/// The most that the kernel has counted since start(), as sampled.
class PinnedPeak {
 public:
  void start() {
    count_.open();
    at_start_ = count_.read();
  }
  /// Reading the kernel's figures takes some 50 us.
  void sample(Time now, std::size_t registered);
  /// Samples when more is registered than at any sample before; at most every 50 ms.
  void sample_growth(Time now, std::size_t registered);
  std::uint64_t peak() const { return peak_; }
  /// The bytes that the kernel counts still; counting ends.
  std::uint64_t finish();

 private:
  PinnedCount count_;
  std::uint64_t at_start_ = 0;
  std::uint64_t peak_ = 0;            ///< beyond at_start_
  std::size_t sampled_at_bytes_ = 0;  ///< the most that was registered at a sample
  Time last_sample_ = 0;
};

}  // namespace pinion
