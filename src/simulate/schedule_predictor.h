// Predictors that are given what is to come, to judge others by; they exist in the simulator only.
//   - `oracle` has the very schedule that the process follows: every use to the nanosecond, but for the waits
//     for registration that Pinion itself makes, which retention takes out of its times.
//   - `schedule` has the schedule without the noise, and is put right at each use of the thread: what a
//     predictor could know at best that has learnt the program, but cannot see the noise of the intervals to
//     come.
// One thread, as every predictor.
#pragma once

#include <memory>
#include <vector>

#include "predict/predictor.h"
#include "simulate/program.h"

namespace pinion::simulate {

/// When each thread uses what, on the program's own time: without waits for registration.
class Schedule {
 public:
  struct Use {
    Time time;
    std::uint32_t buffer;  ///< of this schedule: each range of pages is one
    std::uint64_t site;
    Address address;
  };

  /// Runs the scripts of a process that begins at `start`, without doing what they say.
  Schedule(const std::vector<std::unique_ptr<Script>>& scripts, Time start);

  const std::vector<Use>& uses(std::size_t thread) const { return uses_[thread]; }
  std::size_t threads() const { return uses_.size(); }
  /// Of one buffer: the times at which each thread uses it, in order.
  struct Times {
    std::uint16_t thread;
    std::vector<Time> times;
    std::vector<std::size_t> positions;  ///< in uses()
  };
  const std::vector<Times>& times(std::uint32_t buffer) const { return times_[buffer]; }

 private:
  std::vector<std::vector<Use>> uses_;
  std::vector<std::vector<Times>> times_;
};

class SchedulePredictor final : public Predictor {
 public:
  SchedulePredictor(const char* name, std::shared_ptr<const Schedule> schedule);

  const char* name() const override { return name_; }
  void observe(const Use& use) override;
  Time next_use(BufferId buffer, Time after) const override;
  void forget(BufferId buffer) override;

 private:
  struct Thread {
    std::size_t next = 0;  ///< the first use that has not been seen
    Duration shift = 0;    ///< how much later than scheduled its last use was
  };
  static constexpr std::uint32_t kUnknown = UINT32_MAX;

  const char* const name_;
  const std::shared_ptr<const Schedule> schedule_;
  std::vector<Thread> threads_;
  std::vector<std::uint32_t> known_as_;  ///< by BufferId: the schedule's number
};

}  // namespace pinion::simulate
