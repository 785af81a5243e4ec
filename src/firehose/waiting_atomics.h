// Atomics of peers on memory that was changing as they came. Progress never waits for the end of a change,
// because the change may wait for messages that progress delivers; so they are served later.
//
// Any thread; a mutex guards them, under which flush() tries each. A peer has as many as its window of
// requests (courier.h) at most: one that sends more is refused.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <vector>

#include "base/mutex.h"
#include "firehose/data_message.h"
#include "transfer/endpoint/endpoint.h"

namespace pinion::firehose {

class WaitingAtomics {
 public:
  static constexpr std::ptrdiff_t kMostOfAPeer = 16;

  /// Keeps one. Returns 0, or the errno value by which it is refused.
  int add(transfer::Peer from, const DataMessage& atomic) {
    const MutexLock lock(mutex_);
    const auto others =
        std::count_if(all_.begin(), all_.end(), [&](const Waiting& one) { return one.from == from; });
    if (others >= kMostOfAPeer) return EPROTO;
    try {
      all_.push_back({from, atomic});
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
    count_.store(all_.size(), std::memory_order_release);
    return 0;
  }
  /// Calls serve(from, atomic) for each, in the order of their arrival; those for which it returns false go
  /// on waiting. True: none is left.
  template <class Serve>
  bool flush(Serve&& serve) {
    if (count_.load(std::memory_order_acquire) == 0) return true;
    const MutexLock lock(mutex_);
    std::erase_if(all_, [&](const Waiting& one) { return serve(one.from, one.atomic); });
    count_.store(all_.size(), std::memory_order_release);
    return all_.empty();
  }
  /// The peer is gone.
  void drop(transfer::Peer peer) {
    const MutexLock lock(mutex_);
    std::erase_if(all_, [&](const Waiting& one) { return one.from == peer; });
    count_.store(all_.size(), std::memory_order_release);
  }

 private:
  struct Waiting {
    transfer::Peer from;
    DataMessage atomic;  ///< has no payload
  };

  Mutex mutex_;
  std::vector<Waiting> all_ GUARDED_BY(mutex_);
  std::atomic<std::size_t> count_{0};
};

}  // namespace pinion::firehose
