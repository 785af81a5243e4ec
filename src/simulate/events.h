// The events to come of one simulated process, on its virtual clock. Owns the clock and the queue; those who
// schedule an event know its meaning (process.cpp passes it on). One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace pinion::simulate {

struct Event {
  enum class What : std::uint8_t {
    thread,        ///< its next operation is due
    device_call,   ///< is over
    copied,        ///< into the bounce buffer
    release,       ///< of a lease that ends by itself
    wait_ends,     ///< of a call, in any case
    helper_wakes,  ///< if that wake-up still counts
    helper_acts,
    collapsed,  ///< what the helper turned into hugepages
    script,     ///< of Process::at()
  };
  Time time;
  std::uint64_t order;  ///< of equal times, the first scheduled comes first
  What what;
  bool application;                           ///< it belongs to an application thread
  std::uint32_t index;                        ///< of the thread, call, lease, wake-up or script
  bool operator<(const Event& other) const {  // for a heap whose front is the earliest
    return time != other.time ? time > other.time : order > other.order;
  }
};

class Events {
 public:
  explicit Events(Time start) { clock_.set(start); }

  VirtualClock& clock() { return clock_; }
  Time now() { return clock_.now(); }

  void schedule(Time time, Event::What what, bool application, std::uint32_t index) {
    events_.push_back({std::max(time, now()), scheduled_++, what, application, index});
    std::push_heap(events_.begin(), events_.end());
    of_application_ += application;
  }
  /// Takes the next event, and advances the clock to it.
  Event take() {
    std::pop_heap(events_.begin(), events_.end());
    const Event event = events_.back();
    events_.pop_back();
    of_application_ -= event.application;
    clock_.set(std::max(event.time, now()));
    return event;
  }
  /// The time of the next event; kNever: there is none.
  Time next() const { return events_.empty() ? kNever : events_.front().time; }
  bool of_application() const { return of_application_ > 0; }
  /// Something else has the threads' cores for so long.
  void delay_application(Duration by) {
    for (Event& event : events_)
      if (event.application) event.time += by;
    std::make_heap(events_.begin(), events_.end());
  }

 private:
  VirtualClock clock_;
  std::vector<Event> events_;  ///< a heap
  std::uint64_t scheduled_ = 0;
  std::size_t of_application_ = 0;
};

}  // namespace pinion::simulate
