// The goal of `minimize=peak`: regions go only where all buffers together are more than were ever registered.
// Owns the peak that it has seen; counts uses, to know when the set of buffers is complete. One thread,
// retention's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "registry/domain.h"
#include "retention/buffer_table.h"

namespace pinion {

class PeakGoal {
 public:
  PeakGoal(bool wanted, Domain& domain, const BufferTable& buffers)
      : wanted_(wanted), domain_(domain), buffers_(buffers) {}

  /// The next buffer is new; `uses` have been learnt from before its first.
  void grown(std::uint64_t uses) { grown_at_ = uses + 1; }
  /// Returns whether all buffers together fit below the peak, so that none has to go, and their set counts as
  /// complete after so many uses.
  bool keeps_all(std::uint64_t uses) const { return wanted_ && all_fit(uses); }
  /// Looks at the peak, at a decision. True: the buffers have ceased to fit.
  bool outgrown(std::uint64_t uses) {
    if (!wanted_) return false;
    peak_ = std::max(peak_, domain_.registered_bytes());
    const bool fitted = std::exchange(fitted_, all_fit(uses));
    return fitted && !fitted_;
  }

 private:
  // The set is complete after so many times the uses by the newest one's first.
  static constexpr std::uint64_t kComplete = 4;

  bool all_fit(std::uint64_t uses) const {
    return buffers_.all_pages() * page_size() <= peak_ && uses >= kComplete * grown_at_;
  }

  const bool wanted_;
  Domain& domain_;
  const BufferTable& buffers_;
  std::size_t peak_ = 0;        ///< most bytes registered at a decision
  bool fitted_ = false;         ///< at the last decision
  std::uint64_t grown_at_ = 0;  ///< uses by the first one of the newest buffer
};

}  // namespace pinion
