// The default predictor (prediction-and-retention.md). Each buffer has two experts. On each horizon, the one
// with the least recent loss gives the prediction:
//
//   chain  the next event and its delay, walked ahead to the buffer's next use, from anew at every event
//          (EventModel, LookAhead): its errors are those of the last short gap
//   reuse  how long after a use in this context the buffer is used again (Interval): right where the
//          order of events changes from turn to turn
//
// Events of a thread come in the order of their calls, as far as can be known: a use is known at its end
// only, so the newest are held until one begins after their end, and put in order.
//
// Costs: O(1) amortized an event. A use earns a fixed number of steps of the walk; where the stream
// often leaves the expected way, the walk is short and the reuse expert predicts.
// Memory: EventModel::kMostNodes contexts, as many reuse contexts, LookAhead::kMostSteps steps a thread:
// about 12 MB at most. Each buffer takes about 1 KB (the caller bounds their number).
#pragma once

#include <array>
#include <span>
#include <unordered_map>
#include <vector>

#include "predict/event_model.h"
#include "predict/predictor.h"

namespace pinion {

/// The margin by which a use is prepared for before its predicted time: the one that makes readiness in vain
/// and late uses together cost least, by the recent errors.
struct Margin {
  static constexpr Duration kNotReady = INT64_MIN;  ///< being ready costs more than it saves

  Duration worth = -1;  ///< that it was worked out for; -1: none
  Duration by = 0;
  double risk = 0;
  std::size_t errors = 0;  ///< so many further ones may come before it is worked out anew

  bool ready() const { return by != kNotReady; }
};

/// `errors`: actual less predicted times, in order of size. `worth`: being ready this much too soon is as bad
/// as one late use. `own`: how many errors the buffer itself has had.
Margin best_margin(std::span<const float> errors, Duration worth, std::size_t own);

class AdaptivePredictor final : public Predictor {
 public:
  const char* name() const override { return "adaptive"; }
  Observed observe(const Use& use) override;
  void forget(BufferId buffer) override;
  Time next_use(BufferId buffer, Time after) const override;
  Estimate estimate(BufferId buffer, Time after, Duration worth) const override;
  Duration sooner() const override { return sooner_; }
  const std::vector<BufferId>& moved() const override { return moved_; }
  bool samples_runs() const override { return true; }
  std::string profile() const override;
  Error load_profile(const std::string& bytes) override;

  /// Contexts known.
  std::size_t contexts() const { return model_.size() + reuses_.size(); }

 private:
  enum Horizon : unsigned { at_release, at_last };  ///< one full reuse ahead; when it can still be acted upon
  enum Expert : unsigned { chain, reuse };

  /// Calculated with at once.
  using Four = float __attribute__((vector_size(16)));
  /// Lately, by horizon and expert.
  struct Losses {
    Four values{0.5f, 0.5f, 0.5f, 0.5f};
    float of(Horizon horizon, Expert expert) const { return values[2 * horizon + expert]; }
    void learn(Four loss, float pace) { values += pace * (loss - values); }
  };
  /// A buffer's next use on its thread's look-ahead.
  struct Plan {
    std::uint32_t generation = 0;  ///< of the walk; 0: none
    std::uint64_t step = 0;
    Duration at = 0;
  };
  static constexpr unsigned kReuseContexts = 3;
  struct Buffer {
    bool live = false;
    std::uint16_t thread = 0;  ///< that used it last
    std::uint64_t key = 0;     ///< names it in another run too
    std::uint32_t uses = 0;
    Time last = 0, end = 0;   ///< of the last use
    std::uint64_t event = 0;  ///< number of the last use among its thread's
    std::uint64_t gap = 0;    ///< events of the thread from use to use
    Plan plan;
    std::uint64_t walked_to = LookAhead::kNone;  ///< its last step
    std::uint32_t walked_in = 0;                 ///< in this walk
    Time chain_at_release = kNever;
    Time reuse_at = kNever;
    std::array<std::uint64_t, kReuseContexts> contexts{};  ///< of the last use; 0: none learns
    Losses loss;
    RecentValues errors;    ///< actual less predicted, at last, in ns
    mutable Margin margin;  ///< for its `worth`
  };
  struct Held {
    EventModel::Event event;
    Time time, end;
    std::uint64_t step;  ///< of the look-ahead, and of which walk
    std::uint32_t generation;
    Contexts contexts{};  ///< behind it
  };
  /// The position of the time line when an event was known.
  struct Anchor {
    Time known = INT64_MIN;
    Time base = 0;
    std::uint32_t generation = 0;
    std::uint64_t event = 0;
  };
  struct Thread {
    bool begun = false;
    StreamPosition position;   ///< behind the events in order
    Contexts contexts{};       ///< there
    Time time = 0;             ///< of the last event in order
    std::vector<Held> held;    ///< by time
    StreamPosition newest;     ///< behind these, too
    std::uint64_t passed = 0;  ///< steps before were passed over, or have been seen
    LookAhead ahead;
    std::uint64_t events = 0;
    std::size_t credit = 0;  ///< steps that may be walked
    std::array<Anchor, 64> anchors;
  };
  Buffer& buffer_of(const Use& use);
  /// Returns when the use was predicted.
  Time judge(Buffer& buffer, const Use& use);
  void arrive(Thread& thread, const Use& use, const EventModel::Event& event);
  void put_next_in_order(Thread& thread);
  static void hold(Thread& thread, const Held& held);
  void restart(Thread& thread);
  bool walk(Thread& thread);
  void expect(Thread& thread, std::uint64_t step);
  void meet(Thread& thread, BufferId id);
  void find_next(Thread& thread, BufferId id);
  void plan(Buffer& buffer, const LookAhead& ahead, std::uint64_t step);
  void pass(Thread& thread, std::uint64_t step);
  void choose_reuse(Thread& thread, Buffer& buffer);

  Time next_use(const Buffer& buffer, Time after, Time chain_says) const;
  Time chain_next(const Buffer& buffer, Time after) const;
  Time reuse_next(const Buffer& buffer, Time after) const {
    return buffer.reuse_at > after ? buffer.reuse_at : kNever;
  }
  Time chain_at(const Buffer& buffer, Time moment, Horizon& horizon) const;
  Horizon horizon_of(const Buffer& buffer) const;
  Time believed(const Buffer& buffer, Horizon horizon, Time chain_says, Time reuse_says) const;
  const Margin& margin_of(const Buffer& buffer, Duration worth) const;

  EventModel model_;
  ContextTable<Interval> reuses_{EventModel::kMostNodes};
  ContextTable<std::uint32_t> first_used_{4096};  ///< by call site: so many buffers
  std::vector<Thread> threads_;
  std::vector<Buffer> buffers_;
  std::unordered_map<std::uint64_t, BufferId> by_key_;
  Losses loss_;            ///< of all buffers: a new one's
  RecentValues shares_;    ///< errors of all buffers, as shares of the intervals
  bool profiled_ = false;  ///< so even a buffer used once may be known
  Duration sooner_ = 0;
  std::vector<BufferId> moved_;
};

}  // namespace pinion
