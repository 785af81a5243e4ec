// Retention `helper`: the helper-thread scheme of Li et al. (CF'11), sections 3.2 and 4, as steps.
//
// Owns the helper's view: buffers and their predicted uses, the registration queue, the cost estimates. It
// belongs to one thread (the helper's, or the simulator's); it knows time only as the `now` it is given and
// registration only through a Domain, and it makes no device call itself: next() says what to do, done()
// hears how it went.
//
// Where it goes beyond the paper:
//   - a region that is kept for a use, or registered ahead of it, is let go when the use does not come within
//     three times the longest interval seen between uses of its buffer (the paper would keep it to the end of
//     the run);
//   - a region is let go only while the RQ has room for it, not by its own deadline alone;
//   - predictions are made on the program's own time, without its waits for registration: an interval that a
//     late transfer has prolonged would announce the next uses too late, and so make the next late transfer;
//   - the sleeping helper's wake-up lateness is a term of t_p;
//   - nothing is queued for memory that changed.
#pragma once

#include <deque>
#include <map>
#include <set>
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
    BufferId buffer = 0;  ///< of a registration
    Range pages{};
    Access access = Access::read;
    Time after = 0;  ///< of a deregistration: uses expected later than this are queued
  };

  /// `costs` is fed by done() and by whoever else sees device calls of the same thread.
  HelperRetention(Domain& domain, Predictor& predictor, CostEstimates& costs, Settings settings);

  /// Takes one item of the deregistration queue: learns from it, keeps score and sets the lease's `late` flag
  /// in `record.flags`. What is to be done about it, next() says. `time`: when the transfer needed its
  /// registration. `delayed`: how long the thread has waited for registrations before, in all.
  void use(Record& record, Time time, std::uint16_t thread, Duration delayed = 0);
  /// Pages of `range` changed: forgets the buffers there and drops what is queued for them.
  void memory_event(Range range);
  /// Records were lost: looks at every idle region that no decision is due for.
  void sweep();
  /// From now on predicts and keeps score only, as with Settings::act false.
  void stop_acting();
  /// And from now on acts again, on whatever is idle by now.
  void act_again();

  /// What to do now. At most one action at a time; done() comes before the next call (not for sleep).
  Action next(Time now);
  void done(const Action& action, RegionRef region, bool ok, Duration took, Time now);

  /// When next() will have something to do, if no records come.
  Time next_deadline() const;

  const PredictionScore& score() const { return score_; }
  const RegistrationQueue& queue() const { return queue_; }
  std::size_t buffers() const { return by_begin_.size(); }

 private:
  static constexpr Time kNotYet = INT64_MIN / 2;
  struct Buffer {
    bool live = false;
    Range pages{};
    Access access = Access::read;
    std::uint16_t thread = 0;  ///< that used it last
    Time last_use = kNotYet;
    Duration longest_interval = 0;
    Time predicted_at_release = kNever;
    RegionRef region;
    Time look_at = kNever;  ///< when to look again whether its region is still worth keeping
  };
  static constexpr std::size_t kMostBuffers = 16384;

  BufferId buffer_of(Range pages);
  void drop(BufferId id);
  void forget_oldest(BufferId except);
  void keep_score(const Buffer& buffer, BufferId id, Time time);
  template <class F>
  void for_each_buffer_in(Range range, F&& f) const;
  /// The buffer's earliest predicted use later than `after`.
  Time next_use(BufferId id, Time after) const;
  Time earliest_use(Range region, Time after) const;
  /// The deregistration condition for a region of so many pages whose earliest deadline is `deadline`.
  bool may_deregister(std::size_t pages, Time deadline, Time now) const;
  /// Claims the buffer's region for deregistration, unless it is to be kept for a use later than `after`.
  bool let_go(BufferId id, Time after, Time now, Action& action);
  /// Claims the region for deregistration, if it is idle.
  bool claim(RegionRef ref, Time after, Action& action);
  /// How long after its predicted use a region is kept for it.
  static Duration patience(const Buffer& buffer);
  void look_again(BufferId id, Time at);
  /// The earliest `now` at which the registration condition no longer lets the item wait.
  Time due(const RegistrationQueue::Item& item) const;
  /// The terms of the registration condition: one item of the RQ and one of the DQ.
  Duration service_time(std::size_t pages) const;

  Domain& domain_;
  Predictor& predictor_;
  Settings settings_;
  CostEstimates& costs_;

  std::vector<Buffer> buffers_;
  std::vector<Duration> delays_;  ///< of each thread, up to its last record
  std::vector<BufferId> free_ids_;
  std::map<std::pair<Address, Address>, BufferId> by_begin_;
  RegistrationQueue queue_;
  std::set<std::pair<Time, BufferId>> looks_;    ///< by Buffer::look_at
  std::deque<BufferId> undecided_;               ///< used since the last decision about them
  std::vector<RegionRef> replaced_;              ///< by another region that serves the same buffer
  std::size_t largest_pages_ = 1;                ///< of any buffer so far
  RecentLargest<std::size_t, 1> item_pages_{1};  ///< what an item of the DQ may ask to deregister
  std::size_t forget_beyond_ = kMostBuffers;
  PredictionScore score_;
};

}  // namespace pinion
