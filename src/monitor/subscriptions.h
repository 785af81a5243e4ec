// Ranges of memory that another library's registration cache holds, and whether each is unchanged since it
// was subscribed: for a cache that checks before each hit, as libfabric's does.
//
// Hooks only write events on a board, so they are free of allocation and waits. Ordinary code does the rest:
// each query first reads the board. A range in doubt (an event is going on, or being written; the board was
// lapped; events may have been missed) is not valid: the cache then registers anew, which costs time and is
// never wrong.
//
// Several caches may hold the same range, and their queries are anonymous. Some releases of libfabric leave
// out the unsubscribing of dropped ranges. Two things are certain: a cache drops a range that was not
// valid, and all of them drop a range that they are notified of. So a range is kept once, with the number of
// its holders. A stale range is valid again only after all its holders have dropped it, by one way or the
// other.
//
// Not seen: an event that begins and ends between a registration and its subscription. Only a program that
// changes memory which it is registering at that moment can make one.
//
// post() is for hooks; all else is ordinary code, guarded by a mutex that is held while allocating: hooks run
// without it. After a fork the child calls abandon_after_fork() first.
#pragma once

#include <map>
#include <new>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/range.h"
#include "monitor/brackets.h"
#include "monitor/event_board.h"

namespace pinion {

class Subscriptions {
 public:
  explicit Subscriptions(const Brackets& brackets) : brackets_(brackets) {}

  /// May throw bad_alloc, without effect.
  void subscribe(Range range);
  /// A holder has dropped it. Harmless for an unknown range.
  void unsubscribe(Range range);
  /// Whether `range`, which is subscribed or part of a subscribed one, is unchanged since. If it is not, the
  /// caller drops it; unsubscribing it as well is harmless.
  bool valid(Range range);

  /// Hooks: memory is about to change, within a bracket that is open. Whether it may concern a subscription.
  bool post(Range range) { return board_.post(range); }

  /// The ranges that went stale since the last call, and are held still: their holders have to be notified.
  std::vector<Range> take_stale();
  /// All holders have been notified of this, which take_stale() has given.
  void forget_stale(Range range);

  void abandon_after_fork() { mutex_.free_in_child(); }

 private:
  struct Subscription {
    std::size_t holders = 0;
    bool stale = false;
    bool taken = false;  ///< by take_stale()
  };
  bool is_valid(Range range) REQUIRES(mutex_);
  void drop(Range range) REQUIRES(mutex_);
  void read_board() REQUIRES(mutex_);
  /// Calls f(range, subscription) for all that overlap.
  template <class F>
  void for_each_overlapping(Range range, F&& f) REQUIRES(mutex_);

  const Brackets& brackets_;
  BasicEventBoard<4096> board_;
  Mutex mutex_;  ///< guards reading the board too
  std::map<std::pair<Address, Address>, Subscription> ranges_ GUARDED_BY(mutex_);
  /// The longest range ever: how far ahead of an address one may begin.
  std::size_t longest_ GUARDED_BY(mutex_) = 0;
  bool news_ GUARDED_BY(mutex_) = false;  ///< something went stale since take_stale()
  Range refused_ GUARDED_BY(mutex_);      ///< by valid() just now: its holder may unsubscribe it next
};

}  // namespace pinion
