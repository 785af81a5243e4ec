#include "papers/messages/inbox.h"

#include <algorithm>
#include <utility>

#include "papers/messages/channel.h"

namespace pinion::transfer {

void Inbox::message(Peer from, const void* payload, std::size_t bytes) {
  Control control;
  const bool good = decode(payload, bytes, control);
  const MutexLock lock(mutex_);
  if (closed_ || from >= unread_.size() || unread_[from] > kMostUnread) return;
  if (++unread_[from] > kMostUnread || !good) {
    events_.push_back({from, Nonsense{}});
  } else {
    events_.push_back({from, control});
  }
}

void Inbox::put(Event event) {
  const MutexLock lock(mutex_);
  events_.push_back(std::move(event));
}

std::vector<Event> Inbox::take() {
  const MutexLock lock(mutex_);
  std::fill(unread_.begin(), unread_.end(), 0);
  return std::exchange(events_, {});
}

bool Inbox::empty() {
  const MutexLock lock(mutex_);
  return events_.empty();
}

void Inbox::close() {
  const MutexLock lock(mutex_);
  closed_ = true;
}

}  // namespace pinion::transfer
