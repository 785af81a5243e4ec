// Predictors that are given the future, to judge others by.
//   - `oracle` has the very schedule that the process follows: every use to the nanosecond, but for the waits
//     for registration that Pinion itself makes, which retention takes out of its times.
//   - `schedule` has the noise-free schedule, and is put right at each use of the thread: the best that a
//     predictor could do that has learnt the program, while the noise of the intervals to come is hidden from
//     it.
// One thread, as every predictor.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/range.h"
#include "predict/predictor.h"

namespace pinion {

/// The uses of each thread, on the program's own time: less its waits for registration.
class Schedule {
 public:
  struct Use {
    Time time;
    std::uint32_t buffer;  ///< of this schedule: each range of pages is one
    std::uint64_t site;
    Address address;
  };

  explicit Schedule(std::size_t threads) : uses_(threads) {}

  /// Threads one after the other, the uses of each in order of time.
  void add(std::size_t thread, Time time, Range range, std::uint64_t site);

  const std::vector<Use>& uses(std::size_t thread) const { return uses_[thread]; }
  std::size_t threads() const { return uses_.size(); }
  /// The times at which each thread uses one buffer, in order.
  struct Times {
    std::uint16_t thread;
    std::vector<Time> times;
    std::vector<std::size_t> positions;  ///< in uses()
  };
  const std::vector<Times>& times(std::uint32_t buffer) const { return times_[buffer]; }
  /// The buffer of these pages, if any thread uses it.
  std::optional<std::uint32_t> buffer_of(Range pages) const;

 private:
  std::map<std::pair<Address, Address>, std::uint32_t> buffers_;  ///< by first and last address of the pages
  std::vector<std::vector<Use>> uses_;
  std::vector<std::vector<Times>> times_;
};

class SchedulePredictor : public Predictor {
 public:
  SchedulePredictor(const char* name, std::shared_ptr<const Schedule> schedule);

  const char* name() const override { return name_; }
  Observed observe(const Use& use) override;
  Time next_use(BufferId buffer, Time after) const override;
  void forget(BufferId buffer) override;

 protected:
  const Schedule& schedule() const { return *schedule_; }
  /// The position of `use` in the schedule of its thread. By default the first unseen one that fits:
  /// records may be lost, or come in another order.
  virtual std::optional<std::size_t> locate(const Use& use) const;
  /// The delay of the thread's last use against its schedule.
  Duration shift_of(std::size_t thread) const { return threads_[thread].latest().shift; }

 private:
  /// A thread's position in its schedule when one of its uses had just been seen.
  struct Anchor {
    Time known = INT64_MIN;  ///< when that was
    std::size_t next = 0;    ///< the first unseen use
    Duration shift = 0;      ///< how much later than scheduled the last one was
  };
  struct Thread {
    std::array<Anchor, 64> anchors;  ///< the last ones
    std::size_t seen = 0;
    std::vector<bool> was_seen;  ///< by position in the schedule

    const Anchor& latest() const { return at(0); }
    const Anchor& at(std::size_t back) const { return anchors[(seen - back) % anchors.size()]; }
    /// The latest one that was there at `moment`, if it is remembered.
    const Anchor& by(Time moment) const;
  };
  void follow(const Use& use);
  template <class AnchorOf>
  Time next_use(BufferId buffer, Time after, AnchorOf&& anchor_of) const;

  /// Transfers that are under way together end in any order: so many positions.
  static constexpr std::size_t kDisorder = 32;
  static constexpr std::uint32_t kUnknown = UINT32_MAX;

  const char* const name_;
  const std::shared_ptr<const Schedule> schedule_;
  std::vector<Thread> threads_;
  std::vector<std::uint32_t> known_as_;  ///< by BufferId: the schedule's number
  std::vector<Time> over_;               ///< by BufferId: the end of its last use
};

}  // namespace pinion
