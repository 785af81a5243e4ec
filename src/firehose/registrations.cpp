#include "firehose/registrations.h"

#include <algorithm>

namespace pinion::firehose {

Registrations::Found Registrations::in(BucketRange buckets) const {
  Found found;
  if (buckets.count <= all_.size()) {
    for (std::uint64_t i = 0; i < buckets.count; ++i)
      if (Registration* const of = find(buckets.first + i)) found.push_back(*of);
  } else {
    all_.for_each([&](Registration& of) {
      if (buckets.contains(of.number())) found.push_back(of);
    });
  }
  return found;
}

Registration& Registrations::add(Bucket bucket) {
  Registration& of = pool_.take();
  of.bucket = bucket;
  of.doomed = false;
  of.state = State::waiting;
  all_.insert(&of);
  waiting_.push_back(of);
  return of;
}

void Registrations::remove(Registration& of) {
  if (of.state == State::waiting) waiting_.erase(of);
  all_.erase(&of);
  pool_.put(of);
}

void Registrations::start() {
  while (!waiting_.empty() && !is_full()) {
    Registration& of = *waiting_.pop_front();
    of.epoch = ++last_epoch_;
    of.state = State::pinning;
    ++pinning_;
    peak_ = std::max(peak_, ++registered_);
    actions_.add(OwnerAction::Kind::pin).ref = of.ref();
  }
  while (unpinning_ < waiting_.size() && !fifo_.empty()) unpin_oldest();
}

void Registrations::pinned(Registration& of, const RemoteParts& parts) {
  --pinning_;
  of.state = State::pinned;
  of.parts = parts;
  of.lacking = 0;
}

void Registrations::failed() {
  --pinning_;
  --registered_;
}

void Registrations::unpinned(Registration& of) {
  --registered_;
  --unpinning_;
  if (of.holders.empty()) return;
  of.state = State::waiting;
  waiting_.push_back(of);
}

void Registrations::make_idle(Registration& of) {
  fifo_.push_back(of);
  const bool full = quota_.sharing == Sharing::static_share ? fifo_.size() > quota_.victims
                                                            : registered_ - unpinning_ > quota_.most();
  if (full) unpin_oldest();
}

void Registrations::unpin(Registration& of) {
  of.state = State::unpinning;
  ++unpinning_;
  actions_.add(OwnerAction::Kind::unpin).ref = of.ref();
}

void Registrations::unpin_oldest() { unpin(*fifo_.pop_front()); }

void Registrations::shrink() {
  const std::size_t most_idle =
      quota_.sharing == Sharing::static_share ? quota_.victims : static_cast<std::size_t>(quota_.most());
  while (!fifo_.empty() && (fifo_.size() > most_idle || registered_ - unpinning_ > quota_.most()))
    unpin_oldest();
}

}  // namespace pinion::firehose
