// Schedules the sleeping helper's looks at its rings, if they come before retention's next deadline: dense
// records bring the looks closer together. The helper owns it, or the simulator that stands for it; one
// thread.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/clock.h"

namespace pinion {

class LookSchedule {
 public:
  /// `poll`: the longest sleep while communication is dense.
  LookSchedule(Duration poll, Time now) : poll_(poll), last_record_(now) {}

  /// The rings were looked at, and there was something.
  void found(Time now) {
    const Duration gap = now - last_record_;
    gap_ = gap_ ? (3 * gap_ + gap) / 4 : gap;
    last_record_ = now;
  }

  /// The next record wakes the helper itself: records come seldom, or the last one is long past.
  bool deep(Time now) const { return gap_ > seldom() || now - last_record_ >= kQuiet; }

  /// A look at `until` is farther off than where communication is dense.
  bool far(Time now, Time until) const { return until - now > poll_; }

  /// The next look: after `least` or later, but at `deadline` at the latest. `undecided_bytes`:
  /// registered, and to be let go as records come.
  Time next(Time now, Time deadline, std::size_t undecided_bytes, Duration least = 0) const {
    // A record pushed just while the helper falls asleep may miss that it should wake it: seen at the latest
    // by then.
    if (deep(now)) return std::min(deadline, now + kDeepSleep);
    const Duration sleep = within(deadline == kNever ? kNever : deadline - now, undecided_bytes, now);
    return std::min(deadline, now + std::max(sleep, least));
  }

  // ---- where only the log waits for records, and the rings hold them ----

  /// The rings were looked at; `filling`: one of them is more than a quarter full.
  void pace(bool filling) {
    log_look_ = std::clamp(filling ? log_look_ / 2 : log_look_ * 2, poll_, kDeepSleep);
  }
  Time next_for_log(Time now, Time deadline) const { return std::min(deadline, now + log_look_); }

  // ---- where all cores are busy ----

  /// Wake-ups wait for the next beat of the node's clock: one serves all decisions of a beat, and the helpers
  /// of a node take their cores at the same time, so that their delays overlap. `bounded`: few are
  /// affordable.
  Duration beat(bool bounded) const { return poll_ / (bounded ? 2 : 4); }
  static Time at_beat(Time wake, Duration beat) {
    return beat <= 0 || wake == kNever ? wake : (wake + beat - 1) / beat * beat;
  }

  // ---- beside the records ----

  /// Returns the time from one update of the run's figures to the next: the older the run, the less an update
  /// changes.
  static Duration between_updates(Duration age) {
    return std::clamp(age / kUpdatesPerAge, 200 * kMillisecond, kSecond);
  }

  static constexpr Duration kDeepSleep = 250 * kMillisecond;
  /// Memory that was unmapped under its registration stays pinned until the next look: so much of it calls
  /// for one at once.
  static constexpr std::size_t kMuchDoomed = std::size_t{1} << 20;

 private:
  // While communication goes on, the helper looks this many times in the typical gap between records.
  static constexpr int kLooksPerGap = 16;
  static constexpr int kUpdatesPerAge = 16;
  static constexpr int kLongestPolls = 16;     ///< the longest sleep between looks, in units of `poll`
  static constexpr Duration kQuiet = kSecond;  ///< so long since the last record

  /// A wake-up by a record costs far less than looks in such a gap, however far apart.
  Duration seldom() const { return poll_ * kLongestPolls * kLooksPerGap; }

  Duration within(Duration until_deadline, std::size_t undecided_bytes, Time now) const {
    const Duration look = std::max(gap_ / kLooksPerGap, poll_);
    if (until_deadline == kNever || undecided_bytes > 0) return look;
    // The next chance to let a region go is the next deadline: looks come nearer as it does.
    return std::clamp(until_deadline / 2, look, std::max({look, gap_ / 2, (now - last_record_) / 2}));
  }

  Duration poll_;
  Time last_record_;
  Duration gap_ = 0;                  ///< typical time between batches of records
  Duration log_look_ = kMillisecond;  ///< longer while the rings fill slowly
};

}  // namespace pinion
