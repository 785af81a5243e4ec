// The events that are expected of one thread, in order, on a time line of their own: one step of the model
// after the other, walked only once. An event that comes as expected moves the time line as a whole to where
// it came (re-anchoring), and everything behind it with it. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "predict/event_model.h"

namespace pinion {

class LookAhead {
 public:
  static constexpr std::size_t kMostSteps = 4096;  ///< ahead, per thread
  static constexpr std::uint64_t kNone = UINT64_MAX;
  static constexpr std::uint64_t kTolerance = 16;  ///< steps that events may be out of order by

  struct alignas(64) Step {
    EventName name;
    BufferId buffer = 0;
    bool live = false;                ///< `buffer` is known
    bool seen = false;                ///< the event has come
    Duration at = 0;                  ///< on the time line
    std::uint64_t next_same = kNone;  ///< the buffer's next step
  };

  LookAhead() : steps_(kFirst) {}

  /// Begins anew behind an event that came at `time`. Steps before are gone; their numbers stay
  /// retired.
  void restart(const StreamPosition& position, Time time) {
    first_ = head_ = tail_;
    position_ = position;
    base_ = time;
    end_ = anchored_at_ = 0;
    ++generation_;
  }

  /// Walks one step further; null where the model lacks a successor.
  Step* extend(EventModel& model) {
    if (tail_ - head_ >= kMostSteps) return nullptr;
    EventModel::Next next;
    if (!model.predict(position_, next)) return nullptr;
    position_.advance(next.name);
    end_ += next.after;
    make_room();
    Step& step = steps_[tail_++ & (steps_.size() - 1)];
    step = {next.name, next.buffer, false, false, end_, kNone};
    return &step;
  }

  /// The step that `name` is expected at, when it comes at `time`: the next one, or one after others that
  /// have begun by then and are under way, or were left out. kNone: not expected now.
  std::uint64_t expected(const EventName& name, bool is_new, Time time) const {
    const std::uint64_t end = std::min(tail_, head_ + kTolerance);
    for (std::uint64_t i = head_; i < end; ++i) {
      const Step& step = (*this)[i];
      if (matches(step, name, is_new)) return i;
      const Duration slack = 20 * kMicrosecond + (step.at - anchored_at_) / 16;
      if (base_ + step.at > time + slack) return kNone;
    }
    return kNone;
  }
  /// A step passed over that `name` is, after all. kNone: none.
  std::uint64_t overdue(const EventName& name, bool is_new) const {
    const std::uint64_t begin = head_ < first_ + kTolerance ? first_ : head_ - kTolerance;
    for (std::uint64_t i = head_; i-- > begin;) {
      if (!(*this)[i].seen && matches((*this)[i], name, is_new)) return i;
    }
    return kNone;
  }

  /// The event of step `i` has come at `time`: the time line moves. By how much it became earlier.
  Duration anchor(std::uint64_t i, Time time) {
    (*this)[i].seen = true;
    head_ = i + 1;
    const Time before = base_;
    anchored_at_ = (*this)[i].at;
    base_ = time - anchored_at_;
    return std::max<Duration>(0, before - base_);
  }

  Step& operator[](std::uint64_t i) { return steps_[i & (steps_.size() - 1)]; }
  const Step& operator[](std::uint64_t i) const { return steps_[i & (steps_.size() - 1)]; }
  bool holds(std::uint64_t i) const { return i >= first_ && i + kTolerance >= head_ && i < tail_; }

  std::uint64_t head() const { return head_; }  ///< the next expected one
  std::uint64_t tail() const { return tail_; }
  std::uint64_t last() const { return tail_ - 1; }
  Time base() const { return base_; }
  std::uint32_t generation() const { return generation_; }  ///< of the walk; 0: none yet

 private:
  static constexpr std::size_t kFirst = 64;

  static bool matches(const Step& step, const EventName& name, bool is_new) {
    return step.name.site == name.site &&
           (step.name.buffer == name.buffer || (is_new && step.name.buffer == kNewBuffer));
  }

  void make_room() {
    // Steps passed over stay as long as one of them may turn out to be overdue.
    if (tail_ - head_ + kTolerance < steps_.size()) return;
    std::vector<Step> larger(steps_.size() * 2);
    const std::uint64_t begin = tail_ > steps_.size() ? tail_ - steps_.size() : 0;
    for (std::uint64_t i = begin; i < tail_; ++i) larger[i & (larger.size() - 1)] = (*this)[i];
    steps_.swap(larger);
  }

  std::vector<Step> steps_;
  std::uint64_t first_ = 0, head_ = 0, tail_ = 0;
  StreamPosition position_;   ///< behind the last step
  Duration end_ = 0;          ///< the last step's place on the time line
  Duration anchored_at_ = 0;  ///< that of the latest event
  Time base_ = 0;             ///< when the time line begins
  std::uint32_t generation_ = 0;
};

}  // namespace pinion
