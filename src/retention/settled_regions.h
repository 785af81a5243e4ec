// Settled buffers: they are used again and again, each time sooner than their region could go and come back.
// Decisions about them wait until they rest. Their regions carry a mark for the threads (Region::settled),
// whose hits then leave a count alone (Region::uses). The count tells at each look whether the region was
// used since the look before. The longer a region has been settled, the longer is the time between looks.
//
// Owns the list of marked regions, and the runs of uses that the counts tell of, for the log. One thread,
// retention's.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "registry/domain.h"
#include "retention/buffer_table.h"
#include "retention/ledger.h"
#include "runlog/format.h"

namespace pinion {

class SettledRegions {
 public:
  /// All outlive it.
  SettledRegions(Domain& domain, BufferTable& buffers, const Ledger& ledger)
      : domain_(domain), buffers_(buffers), ledger_(ledger) {}

  /// Whether uses before the records that follow left none, because rings were full.
  void note_losses(bool any) { records_lost_ = any; }
  enum class May : std::uint8_t { never, at_once, after_a_run };
  /// Notes whether the buffer is settled with this use: as `may` has it, or as the use came too soon for a
  /// decision, like those of its thread before.
  void note(Buffer& buffer, const runlog::Event& lease, RegionRef region, May may);
  /// Returns whether this use of a settled buffer is passed over: the predictor sees a sample.
  static bool passes_over(Buffer& buffer) {
    return buffer.settled.by_last_use && buffer.settled.passed++ % kOfRun != 0;
  }
  /// Returns when the region will have rested long enough for a decision, as far as is known now; up to
  /// `now`: it has.
  Time rested_at(RegionRef ref, Time now);
  /// Decisions about the region wait until then, and hits on it leave no records, if all its buffers are
  /// settled.
  void mark(RegionRef ref, Time now, Time until);
  /// Bytes whose next decision comes later than now.
  std::size_t bytes(Time now);
  /// Ends the region's mark, or all marks.
  void end(const RegionRef& ref, Time now);
  void clear(Time now);
  /// The runs of uses since the last call, as events of kind `uses`.
  std::vector<runlog::Event> take_runs() { return std::exchange(runs_, {}); }

 private:
  // Uses of a thread in a row that each came too soon for a decision, until their buffers are settled. Then
  // one in so many of a buffer's is learnt from.
  static constexpr unsigned kRun = 16;
  static constexpr std::uint32_t kOfRun = 16;

  struct Marked {
    std::uint32_t generation = 0;
    std::uint32_t uses = 0;  ///< at the last look
    Time looked = 0;
    Time until = 0;
  };
  using Marks = std::unordered_map<Region*, Marked>;

  static RegionRef ref_of(const Marks::value_type& mark) { return {mark.first, mark.second.generation}; }
  /// Returns whether the region was used since the look before.
  bool look(Region* region, Marked& marked, Time now);
  void unmark(const RegionRef& ref);
  /// Returns the time since the use before; where uses left no record, their mean time: a region's buffers
  /// share its count.
  Duration interval(Buffer& buffer, Time begin, const Region& region) const;
  void note_run(const Buffer& buffer, std::uint32_t count, Time begin, Time end);

  Domain& domain_;
  BufferTable& buffers_;
  const Ledger& ledger_;
  Marks marked_;
  std::vector<runlog::Event> runs_;
  bool records_lost_ = false;
  std::vector<unsigned> soon_;  ///< by thread: uses in a row that came too soon for a decision, up to kRun
};

}  // namespace pinion
