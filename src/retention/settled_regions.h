// Settled buffers: they are used again and again, each time sooner than their region could go and come back.
// Decisions about them wait until they rest. Their regions carry a mark for the threads, which count hits on
// them in runs (use_runs.h). Owns the list of marked regions; marks are written to Region::settled_until. One
// thread, retention's.
#pragma once

#include <cstdint>
#include <vector>

#include "registry/domain.h"
#include "retention/buffer_table.h"
#include "retention/ledger.h"
#include "runlog/format.h"

namespace pinion {

class SettledRegions {
 public:
  /// All outlive it.
  SettledRegions(Domain& domain, const BufferTable& buffers, const Ledger& ledger)
      : domain_(domain), buffers_(buffers), ledger_(ledger) {}

  /// Notes whether the buffer is settled with this use: it came too soon for a decision, as those of its
  /// thread before. Only `may_settle` buffers are.
  void note(Buffer& buffer, const runlog::Event& lease, RegionRef region, bool may_settle);
  /// Returns whether this use of a settled buffer is passed over: the predictor sees a sample.
  static bool passes_over(Buffer& buffer) {
    return buffer.settled.by_last_use && buffer.settled.passed++ % kOfRun != 0;
  }
  /// Returns when the region has rested long enough for a decision, as far as is known now; kNotYet: at once.
  Time rested_at(RegionRef ref, Time now) const;
  /// Decisions about the region wait until then, and threads count hits on it in runs, if all its buffers are
  /// settled.
  void mark(RegionRef ref, Time until);
  /// Bytes whose next decision comes later than now.
  std::size_t bytes(Time now);
  void clear() { marked_.clear(); }

 private:
  // Uses of a thread in a row that each came too soon for a decision, until their buffers are settled. Then
  // one in so many of a buffer's is learnt from.
  static constexpr unsigned kRun = 16;
  static constexpr std::uint32_t kOfRun = 16;

  struct Marked {
    RegionRef region;
    Time until;
  };

  Domain& domain_;
  const BufferTable& buffers_;
  const Ledger& ledger_;
  std::vector<Marked> marked_;
  std::vector<unsigned> soon_;  ///< by thread: uses in a row that came too soon for a decision, up to kRun
};

}  // namespace pinion
