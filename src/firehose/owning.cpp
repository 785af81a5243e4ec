#include "firehose/owning.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <string>

#include "base/process_mutex.h"
#include "firehose/outbox.h"
#include "monitor/memory_events.h"

namespace pinion::firehose {

namespace {

constexpr Duration kPatience = 10 * kSecond;
constexpr Duration kCarryOutAgain = 50 * kMillisecond;
/// Looks at memory that wait for the agent; peers ask for them.
constexpr unsigned kMostLooks = 64;
/// Delay before the memory for peers doubles again, after leases lacked room.
constexpr Duration kGrowAgain = kSecond;

/// Memory whose change can wait for peers: any, if libc's functions are hooked and the provider checks keys.
Exposes can_expose(const char* provider) {
  MemoryMonitor* const monitor = memory_events::monitor();
  const std::string by = monitor ? monitor->chosen().name() : "";
  if (by != "libc" && by != "symbols") return Exposes::nothing;
  const std::string name = provider;
  return name.starts_with("shm") || name.starts_with("sm2") ? Exposes::own_segments : Exposes::everything;
}

void count(Time since, TypicalTime& typical, Duration& sum) {
  const Duration time = monotonic_now() - since;
  typical.add(time);
  sum += time;
}

/// Keeps the object reachable for ever.
template <class T>
T& kept(T* object) {
  static ProcessMutex mutex;
  static std::deque<T*>* const all = new std::deque<T*>;
  const ProcessLock lock(mutex);
  return *all->emplace_back(object);
}

}  // namespace

Owning::Owning(Ways& ways, BucketSize size, const Quota& quota)
    : ways_(ways),
      size_(size),
      quota_(quota),
      owner_(quota, &Owning::exposes, this),
      outlives_(quota.processes),
      pins_(kept(new Pins(ways.endpoint->domain(), size))),
      recalls_(kept(new Recalls(
          pins_,
          ways.options.recall_timeout_ns ? static_cast<Duration>(ways.options.recall_timeout_ns) : kPatience,
          [](void* bell) { static_cast<Bell*>(bell)->ring(); }, &ways.bell))) {
  served_.reserve(kMostLooks);
  const Exposes can = can_expose(ways.endpoint->capabilities().provider);
  if (can != Exposes::nothing && !memory_events::add(recalls_)) exposes_ = can;
  peer_memory::add(*this);
}

void Owning::close() {
  peer_memory::remove(*this);
  exposes_ = Exposes::nothing;
  recalls_.leave();
  memory_events::remove(recalls_);
  pins_.unpin_all();
  memory_events::carry_out();
}

// ---- events and their actions

template <class Event>
void Owning::run(Event&& event) {
  const MutexLock lock(mutex_);
  event();
  carry_out_actions();
}

/// Sends messages; leaves the rest to the agent. Under the lock.
void Owning::carry_out_actions() {
  bool rings = false;
  while (OwnerAction* const action = owner_.next()) {
    if (action->is_message()) {
      char wire[kMostMessage];
      const std::size_t bytes = encode(owner_.message_of(*action), wire);
      // An error is the peer's end, which the endpoint reports.
      static_cast<void>(ways_.outbox->send(action->peer, kControlMessage, wire, bytes));
      owner_.put(*action);
      continue;
    }
    action->since = monotonic_now();
    tasks_.push_back(*action);
    rings = true;
  }
  if (rings) ways_.bell.ring();
}

void Owning::moved(Peer from, const Move& move) {
  run([&]() REQUIRES(mutex_) { owner_.move(from, move); });
}

void Owning::released(Peer from, const Release& release) {
  run([&]() REQUIRES(mutex_) { owner_.release(from, release); });
}

void Owning::gone(Peer peer) {
  if (exposes_ != Exposes::own_segments) return run([&]() REQUIRES(mutex_) { owner_.gone(peer); });
  {
    const MutexLock lock(mutex_);
    outlives_[peer] = true;
    bury_at_ = 0;
  }
  ways_.bell.ring();
}

bool Owning::exposes(const void* self, Bucket bucket) {
  return !memory_events::brackets().sight.blind() &&
         !static_cast<const Owning*>(self)->exposed_part(bucket).empty();
}

/// Returns the part of a bucket that peers may have registered; empty: none.
Range Owning::exposed_part(Bucket bucket) const {
  const Exposes exposes = exposes_;
  const Range part = exposes == Exposes::nothing ? Range{} : ways_.exposure.part_of(size_.range(bucket));
  return exposes != Exposes::own_segments || peer_memory::is_own_segment(part) ? part : Range{};
}

void Owning::served(Range memory) {
  if (pins_.bytes() == 0) return;
  {
    const MutexLock lock(mutex_);
    if (served_.size() == kMostLooks || !owner_.lacks(memory, size_.of(memory.begin))) return;
    served_.push_back(memory);
  }
  ways_.bell.ring();
}

/// Leases of this process lack room: peers give some back, for a while.
bool Owning::asked_for(std::uint64_t bytes) {
  const bool is_agent = Recalls::is_agent();
  if (pins_.bytes() == 0 || (is_agent && pinning_)) return false;
  missing_.store(bytes, std::memory_order_relaxed);
  ways_.bell.ring();
  return !is_agent;  // which would wait for itself
}

// ---- the agent

void Owning::pin(const OwnerAction& task) {
  RemoteParts parts;
  const Bucket bucket = task.ref.bucket;
  pinning_ = true;
  Error error = pins_.pin(bucket, exposed_part(bucket), parts);
  // Its memory may have changed hands before it counted as pinned.
  if (!error && exposed_part(bucket).empty()) {
    pins_.unpin(bucket);
    error = Error::make(EPERM, "the memory is not exposed any more");
  }
  pinning_ = false;
  run([&]() REQUIRES(mutex_) {
    if (error) return owner_.pin_failed(task.ref, error.code);
    count(task.since, pin_time_, spent_.pins);
    owner_.moves_take(pin_time_.get() + unpin_time_.get());
    owner_.pinned(task.ref, parts);
  });
}

void Owning::unpin(const OwnerAction& task) {
  pins_.unpin(task.ref.bucket);
  run([&]() REQUIRES(mutex_) {
    count(task.since, unpin_time_, spent_.unpins);
    owner_.moves_take(pin_time_.get() + unpin_time_.get());
    owner_.unpinned(task.ref);
  });
}

/// Renews buckets whose memory may have been mapped since they were registered.
void Owning::look_at_served() {
  for (;;) {
    Range memory;
    {
      const MutexLock lock(mutex_);
      if (served_.empty()) return;
      memory = served_.back();
      served_.pop_back();
    }
    const Bucket bucket = size_.of(memory.begin);
    if (Pins::would_pin(exposed_part(bucket), memory)) run([&]() REQUIRES(mutex_) { owner_.renew(bucket); });
  }
}

/// Some may be held back still: by other sinks, by hooks at work on the same memory, by silent peers.
void Owning::carry_out_changes() {
  const bool done = memory_events::carry_out() == 0;
  carry_out_at_ = done ? kNever : monotonic_now() + kCarryOutAgain;
}

void Owning::revoked(Revocation revocation) {
  if (!recalls_.grant(revocation)) return;  // its hook goes on, and reports the end
  carry_out_changes();
  run([&]() REQUIRES(mutex_) { owner_.end_revocation(revocation); });
  recalls_.end(revocation);
}

void Owning::carry_out(const OwnerAction& task) {
  switch (task.kind) {
    case OwnerAction::Kind::pin:
      return pin(task);
    case OwnerAction::Kind::unpin:
      return unpin(task);
    case OwnerAction::Kind::revoked:
      return revoked(task.number);
    default:
      return ways_.outbox->lose(task.peer);  // the job cuts it off
  }
}

void Owning::share_room(Time now) {
  const std::uint64_t missing = missing_.exchange(0, std::memory_order_relaxed);
  if (missing == 0 && now < grow_at_) return;
  run([&]() REQUIRES(mutex_) {
    if (missing > 0) {
      const std::uint64_t registered = owner_.registrations().registered();
      owner_.resize(registered - std::min(registered, (missing + size_.bytes() - 1) / size_.bytes()), 0);
      grow_at_ = now + kGrowAgain;
      return;
    }
    const std::uint64_t buckets = std::min(quota_.buckets, 2 * owner_.quota().buckets + 1);
    const bool whole = buckets == quota_.buckets;
    owner_.resize(buckets, whole ? quota_.victims : 0);
    grow_at_ = whole ? kNever : now + kGrowAgain;
  });
}

void Owning::begin_revocations() {
  for (Recalls::Asked asked; revoking_ || recalls_.take(asked); revoking_.reset()) {
    if (!revoking_) revoking_ = asked;  // until it has begun
    const Range whole{revoking_->range.begin, std::min(revoking_->range.end, kAddressEnd)};
    run([&]() REQUIRES(mutex_) {
      owner_.revoke(revoking_->name, whole.empty() ? BucketRange{} : size_.touched(whole),
                    revoking_->deadline);
    });
  }
}

void Owning::end_revocations() {
  for (std::uint64_t name = 0; recalls_.take_over(name);) {
    run([&]() REQUIRES(mutex_) {
      owner_.late(monotonic_now());  // those for whom it was given up
      owner_.end_revocation(name);
    });
    recalls_.end(name);
  }
}

/// Lets go of peers whose processes have ended. Under the lock.
void Owning::bury(Time now) {
  bury_at_ = kNever;
  for (Peer peer = 0; peer < outlives_.size(); ++peer) {
    if (!outlives_[peer]) continue;
    outlives_[peer] = ways_.endpoint->lives(peer);
    if (outlives_[peer])
      bury_at_ = now + kCarryOutAgain;
    else
      owner_.gone(peer);
  }
}

/// The next task. False: there is none.
bool Owning::take_task(OwnerAction& task) {
  const MutexLock lock(mutex_);
  const Time now = monotonic_now();
  if (bury_at_ <= now) bury(now);
  if (tasks_.empty() && owner_.deadline() <= now) owner_.late(now);
  carry_out_actions();
  OwnerAction* const first = tasks_.pop_front();
  if (!first) return false;
  task = *first;
  owner_.put(*first);
  return true;
}

Time Owning::work() {
  Recalls::become_agent();
  for (;;) {
    end_revocations();
    begin_revocations();
    if (carry_out_at_ <= monotonic_now()) carry_out_changes();
    share_room(monotonic_now());
    look_at_served();
    OwnerAction task;
    if (take_task(task)) {
      carry_out(task);
      continue;
    }
    const MutexLock lock(mutex_);
    return std::min({owner_.deadline(), carry_out_at_, grow_at_, bury_at_});
  }
}

void Owning::add_to(struct pinion_firehose_statistics& out) const {
  out.exposed_bytes = pins_.bytes();
  out.exposed_peak_bytes = pins_.peak_bytes();
  const MutexLock lock(mutex_);
  const OwnerCounters& owner = owner_.counters();
  out.pins = owner.pins;
  out.unpins = owner.unpins;
  out.victim_hits = owner.victim_hits;
  out.recalls = owner.recalls;
  out.cut_off = owner.cut_off;
  out.pin_ns = static_cast<std::uint64_t>(spent_.pins);
  out.unpin_ns = static_cast<std::uint64_t>(spent_.unpins);
}

}  // namespace pinion::firehose
