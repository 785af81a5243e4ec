// Sampled copies whose bytes are compared at both ends (option verify): the device's are brought back by
// a plain copy of the same stream into memory of ours.
//
// A verdict needs both ends to stand still: the host's memory is hashed before a copy to the device, or
// directly after one from it, and again where a difference was found; the device's bytes are then brought
// back twice. What another thread of the program writes meanwhile leaves the copy without a verdict.
//
// Owns the share, and counts verdicts (lease/copy_counters.h). Any thread, outside of memory hooks. A
// CopyCheck belongs to one thread and one copy.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "intercept/cuda/copy_call.h"
#include "lease/copy_counters.h"

namespace pinion::cuda {

/// Sets the share of copies that are checked, chosen at random. Called before copies begin.
void check_copies(double share);

class CopyCheck {
 public:
  /// Directly before the copy is made: chooses whether it is checked.
  CopyCheck(const Driver& driver, const LinearCopy& copy);
  bool chosen() const { return chosen_; }
  /// Directly after the copy has ended, with success, while no other thread can submit to its stream. Says
  /// and counts what it finds.
  void finish(runlog::CopyWay way);

 private:
  enum class Found { equal, different, unclear };
  Found compare();
  Found compare_piece(char* ours, std::size_t at, std::size_t bytes);
  /// Brings bytes of the device back.
  bool fetch(char* ours, std::size_t at, std::size_t bytes) const;
  std::uint64_t hash_of_host() const;

  const Driver& driver_;
  const LinearCopy& copy_;
  bool chosen_;
  std::uint64_t host_ = 0;       ///< the host's memory while the copy was made, as a hash
  std::size_t first_other_ = 0;  ///< where the first difference is
};

/// The time that the calling thread has spent on checks so far.
Duration time_of_checks();

}  // namespace pinion::cuda
