// Retention `helper`: the helper-thread scheme of Li et al. (CF'11), sections 3.2 and 4, as steps.
//
// Owns the helper's view: buffers and their predicted uses, the registration queue, the cost estimates. It
// belongs to one thread (the helper's, or the simulator's); it knows time only as the `now` it is given and
// registration only through a Domain, and it makes no device call itself: next() says what to do, done()
// hears how it went.
//
// Where it goes beyond the paper:
//   - a region registered ahead whose use does not come within the longest interval seen between its uses is
//   let go
//     (the paper would keep it to the end of the run);
//   - the sleeping helper's wake-up lateness is a term of t_p;
//   - nothing is queued for memory that changed.
#pragma once

#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "predict/predictor.h"
#include "registry/domain.h"
#include "retention/cost_estimate.h"
#include "retention/record.h"
#include "retention/registration_queue.h"

namespace pinion {

/// How good the predictions were (DESIGN 2): every reuse of a buffer counts, one without a prediction as
/// wrong.
struct PredictionScore {
  std::uint64_t reuses = 0;
  std::uint64_t within_0_5 = 0, within_5 = 0;  ///< at the last moment it could still act
  std::uint64_t at_release_within_0_5 = 0, at_release_within_5 = 0;  ///< one full reuse ahead
  std::uint64_t late = 0;
};

class HelperRetention {
 public:
  struct Settings {
    bool act = true;  ///< false: predict and keep score only (retention observe)
  };

  struct Action {
    enum class Kind {
      sleep,           ///< until `wake_at`, or until records come
      deregister,      ///< deregister region->key (claimed), then done()
      register_ahead,  ///< run a ticket without lease for `pages` and `access`, then done()
    };
    Kind kind = Kind::sleep;
    Time wake_at = kNever;
    Region* region = nullptr;
    BufferId buffer = 0;
    Range pages{};
    Access access = Access::read;
  };

  /// `costs` is fed by done() and by whoever else sees device calls of the same thread.
  HelperRetention(Domain& domain, Predictor& predictor, CostEstimates& costs, Settings settings);

  /// Takes one item of the deregistration queue: learns from it, keeps score and sets the lease's `late` flag
  /// in `record.flags`. What is to be done about it, next() says. `time`: when the transfer needed its
  /// registration.
  void use(Record& record, Time time, std::uint16_t thread);
  /// Pages of `range` changed: forgets the buffers there and drops what is queued for them.
  void memory_event(Range range);
  /// Records were lost: looks at every idle region that no decision is due for.
  void sweep();

  /// What to do now. At most one action at a time; done() comes before the next call (not for sleep).
  Action next(Time now);
  void done(const Action& action, RegionRef region, bool ok, Duration took, Time now);

  /// When next() will have something to do, if no records come.
  Time next_deadline() const;

  const PredictionScore& score() const { return score_; }
  const RegistrationQueue& queue() const { return queue_; }
  std::size_t buffers() const { return by_begin_.size(); }

 private:
  struct Buffer {
    bool live = false;
    Range pages{};
    Access access = Access::read;
    Time last_use = 0;
    Duration longest_interval = 0;
    Time predicted_at_release = kNever;
    RegionRef region;
    Time give_up = kNever;  ///< a region registered ahead is let go when its use has not come by then
  };
  static constexpr std::size_t kMostBuffers = 16384;

  BufferId buffer_of(Range pages);
  void drop(BufferId id);
  void forget_oldest();
  void keep_score(const Buffer& buffer, BufferId id, Time time);
  Time earliest_use(Range region, Time after) const;
  /// The paper's deregistration condition for a region whose earliest deadline is `deadline`.
  bool may_deregister(std::size_t pages, Time deadline, Time now) const;
  /// The earliest `now` at which the registration condition no longer lets the first item wait.
  Time due(const RegistrationQueue::Item& item) const;
  Duration service_time(std::size_t pages) const;

  Domain& domain_;
  Predictor& predictor_;
  const Settings settings_;
  CostEstimates& costs_;

  std::vector<Buffer> buffers_;
  std::vector<BufferId> free_ids_;
  std::map<std::pair<Address, Address>, BufferId> by_begin_;
  RegistrationQueue queue_;
  std::multimap<Time, BufferId> give_ups_;
  std::vector<BufferId> undecided_;  ///< used since the last decision about them
  std::size_t largest_pages_ = 1;
  PredictionScore score_;
};

}  // namespace pinion
