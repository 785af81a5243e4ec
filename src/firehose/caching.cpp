#include "firehose/caching.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "firehose/bucket_choice.h"
#include "monitor/memory_events.h"

namespace pinion::firehose {

namespace {

constexpr Duration kPatience = 10 * kSecond;
constexpr Duration kCarryOutAgain = 50 * kMillisecond;
/// Looks at memory that wait for the agent; peers ask for them.
constexpr unsigned kMostLooks = 64;
/// Until the memory for peers doubles again, after leases lacked room.
constexpr Duration kGrowAgain = kSecond;

/// Of rendezvous: more buckets than memory has.
constexpr std::uint64_t kUnbounded = std::uint64_t{1} << 30;

Quota quota_of(const pinion_firehose_options& options, std::size_t bucket, Peer processes, Keeps keeps) {
  if (keeps != Keeps::firehoses)
    return {Sharing::static_share, kUnbounded, keeps == Keeps::registrations ? kUnbounded : 0, processes};
  const std::uint64_t memory = memory_for_peers(options);
  Quota quota;
  quota.buckets = memory / bucket;
  quota.victims = options.victims ? options.victims / bucket : quota.buckets / 16;
  quota.processes = processes;
  return quota;
}

/// Whose change can wait for peers: that of any memory where libc's functions are hooked, and the provider
/// checks keys.
Exposes can_expose(const char* provider) {
  MemoryMonitor* const monitor = memory_events::monitor();
  const std::string by = monitor ? monitor->chosen().name() : "";
  if (by != "libc" && by != "symbols") return Exposes::nothing;
  const std::string name = provider;
  return name.starts_with("shm") || name.starts_with("sm2") ? Exposes::own_segments : Exposes::everything;
}

/// Reachable for ever.
template <class T>
T& kept(T* object) {
  static std::mutex mutex;
  static std::deque<T*>* const all = new std::deque<T*>;
  const std::lock_guard lock(mutex);
  return *all->emplace_back(object);
}

/// One hit in so many is timed.
bool is_sampled() {
  constexpr unsigned kOneIn = 64;
  thread_local unsigned t_hits = 0;
  return ++t_hits % kOneIn == 0;
}

}  // namespace

Caching::Caching(Ways& ways, Keeps keeps)
    : ways_(ways),
      keeps_(keeps),
      size_(ways.options().bucket),
      quota_(quota_of(ways.options(), size_.bytes(), ways.endpoint().peers(), keeps)),
      most_light_(ways.endpoint().capabilities().max_message - kMostMessage),
      patience_(ways.options().recall_timeout_ns ? static_cast<Duration>(ways.options().recall_timeout_ns)
                                                 : kPatience),
      initiator_(ways.endpoint().peers(), quota_.first_limit(), *this, size_.end()),
      owner_(quota_, *this),
      outlives_(ways.endpoint().peers()),
      pins_(kept(new Pins(ways.endpoint().domain(), size_))),
      recalls_(kept(new Recalls(
          pins_, patience_, [](void* to) { static_cast<Ways*>(to)->ring(); }, &ways))),
      times_(ways.endpoint().peers()) {
  const Exposes can = can_expose(ways.endpoint().capabilities().provider);
  if (can != Exposes::nothing && !memory_events::add(recalls_)) exposes_ = can;
  if (LeasePath* const leases = LeasePath::running()) leases->add(*this);
}

void Caching::close() {
  if (LeasePath* const leases = LeasePath::running()) leases->remove(*this);
  exposes_ = Exposes::nothing;
  recalls_.leave();
  memory_events::remove(recalls_);
  pins_.unpin_all();
  memory_events::carry_out();
}

// ---- initiator

/// Runs `f` under the lock, and then goes on with the parts that it has answered.
template <class F>
void Caching::as_initiator(F&& f) {
  Parts answered;
  {
    const std::lock_guard lock(initiator_mutex_);
    initiator_.at(monotonic_now());
    f();
    answered = std::exchange(answered_, {});
  }
  while (Part* const part = answered.pop_front()) {
    if (part->firehose)
      use(*part, *part->firehose);
    else if (part->error == ECONNRESET)
      ways_.fail(*part, part->error);
    else
      by_message(*part);
  }
}

void Caching::begin(std::span<Part* const> parts) {
  std::array<Part*, kMostTogether> missed;
  std::size_t count = 0;
  for (Part* const part : parts)
    if (!use_if_held(*part)) missed[count++] = part;
  if (count > 0) ask({missed.data(), count});
}

bool Caching::use_if_held(Part& part) {
  part.sampled = is_sampled();
  const Ticks begin = part.sampled ? ticks_now() : 0;
  Firehose* const firehose = initiator_.try_use(part.peer, size_.of(part.remote));
  if (!firehose) {
    part.sampled = false;
    return false;
  }
  if (!locate(part, *firehose)) {
    outside(part);
    return true;
  }
  hits_.fetch_add(1, std::memory_order_relaxed);
  if (part.sampled) {
    part.begun = begin;
    bookkeeping_ticks_.fetch_add(ticks_now() - begin, std::memory_order_relaxed);
    sampled_hits_.fetch_add(1, std::memory_order_relaxed);
  }
  ways_.by_provider(part);
  return true;
}

/// One message wants the buckets of all parts. A part that waits may be over before this returns.
void Caching::ask(std::span<Part* const> parts) {
  using Need = BasicInitiator<>::Need;
  std::array<BasicInitiator<>::Needed, kMostTogether> needed;
  for (Part* const part : parts) {
    assert(
        !part->leased);  // remote memory before local: no part that waits for a peer holds what others need
    part->call->went(Way::asked_for);
    part->light = part->bytes <= most_light_;
  }
  as_initiator([&] {
    if (const Duration message = times_.by_message.get())
      initiator_.operations_take(times_.held.get(), message, times_.riding.settled());
    for (std::size_t i = 0; i < parts.size(); ++i)
      needed[i] = initiator_.need(parts[i]->peer, size_.of(parts[i]->remote), *parts[i]);
    const bool rides = keeps_ == Keeps::firehoses && parts.size() == 1;
    initiator_.flush(rides ? parts[0] : nullptr);
  });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    switch (needed[i].what) {
      case Need::hit:
        if (use(*parts[i], *needed[i].firehose)) hits_.fetch_add(1, std::memory_order_relaxed);
        break;
      case Need::asks:
        misses_.fetch_add(1, std::memory_order_relaxed);
        break;
      case Need::waits:
        waited_.fetch_add(1, std::memory_order_relaxed);
        break;
      case Need::by_message:
        by_message(*parts[i]);
        break;
      case Need::gone:
        ways_.fail(*parts[i], ECONNRESET);
        break;
    }
  }
}

void Caching::by_message(Part& part) {
  part.begun = times_.begin(part.peer, ticks_now());
  ways_.by_message(part);
}

/// The part has a use of it. False: its memory is not registered there.
bool Caching::locate(Part& part, Firehose& firehose) {
  part.firehose = &firehose;
  const RemotePart* const remote = part_of(firehose.parts, {part.remote, part.remote + part.bytes});
  if (!remote) return false;
  part.target = {remote->address + (part.remote - remote->begin), remote->key};
  return true;
}

/// Of a bucket that is registered without the part's memory.
void Caching::outside(Part& part) {
  part.sampled = false;
  ended(part);
  by_message(part);
}

/// True: by the firehose.
bool Caching::use(Part& part, Firehose& firehose) {
  if (!locate(part, firehose)) {
    outside(part);
    return false;
  }
  ways_.by_provider(part);
  return true;
}

void Caching::ended(Part& part) {
  Firehose* const firehose = std::exchange(part.firehose, nullptr);
  if (!firehose) return;
  const Ticks begin = part.sampled ? ticks_now() : 0;
  if (part.begun) times_.held.add(calibration().to_duration(begin - part.begun));
  part.begun = 0;
  if (initiator_.end_use(*firehose)) return as_initiator([&] { initiator_.drained(*firehose); });
  if (part.sampled) bookkeeping_ticks_.fetch_add(ticks_now() - begin, std::memory_order_relaxed);
  if (keeps_ == Keeps::firehoses) return;
  as_initiator([&] { initiator_.recall(part.peer, {{size_.of(part.remote), 1}, ~Epoch{0}}); });
}

void Caching::answered(Part& part) {
  times_.met(part.peer);
  TypicalTime& time = part.rides ? times_.riding : times_.by_message;
  if (part.begun) time.add(calibration().to_duration(ticks_now() - part.begun));
  if (part.rides) as_initiator([&] { initiator_.rider_ended(part.peer, size_.of(part.remote)); });
}

bool Caching::send_with(Peer to, const Move& move, Waiter& rider) {
  auto& part = static_cast<Part&>(rider);
  part.begun = times_.begin(to, ticks_now());
  char wire[kMostMessage];
  part.rides = true;  // it may be over before ride() returns
  if (part.peer == to && ways_.ride(part, wire, encode(move, wire))) return true;
  part.rides = false;
  part.begun = 0;
  return false;
}

void Caching::granted(Waiter& waiter, Firehose& firehose) {
  auto& part = static_cast<Part&>(waiter);
  part.firehose = &firehose;
  answered_.push_back(part);
}

void Caching::refused(Waiter& waiter, int error) {
  refusals_.fetch_add(1, std::memory_order_relaxed);
  auto& part = static_cast<Part&>(waiter);
  part.error = error;
  answered_.push_back(part);
}

// ---- messages

void Caching::send(Peer to, const Message& message) {
  char wire[kMostMessage];
  ways_.control(to, wire, encode(message, wire));
}

void Caching::message(Peer from, const void* payload, std::size_t bytes) {
  const auto decoded = decode(payload, bytes, size_);
  if (!decoded) return;
  times_.met(from);
  const Message& message = decoded->message;
  if (const auto* move = std::get_if<Move>(&message)) {
    {
      const std::lock_guard lock(owner_mutex_);
      owner_.move(from, *move);
    }
    if (decoded->bytes < bytes)
      ways_.serve(from, static_cast<const char*>(payload) + decoded->bytes, bytes - decoded->bytes);
  } else if (const auto* release = std::get_if<Release>(&message)) {
    const std::lock_guard lock(owner_mutex_);
    owner_.release(from, *release);
  } else if (const auto* answer = std::get_if<pinion::firehose::Answer>(&message)) {
    moves_.fetch_add(answer->grants.count, std::memory_order_relaxed);
    as_initiator([&] {
      for (const Grant& grant : answer->grants) distinct_.add(grant.ref.bucket << 24 ^ from);
      initiator_.answer(from, *answer);
    });
  } else if (const auto* recall = std::get_if<Recall>(&message)) {
    as_initiator([&] { initiator_.recall(from, *recall); });
  } else if (const auto* limit = std::get_if<Limit>(&message)) {
    as_initiator([&] { initiator_.limit(from, *limit); });
  }
}

void Caching::disconnected(Peer peer) {
  as_initiator([&] { initiator_.gone(peer); });
}

void Caching::gone(Peer peer) {
  disconnected(peer);
  const std::lock_guard lock(owner_mutex_);
  if (exposes_ != Exposes::own_segments) return owner_.gone(peer);
  outlives_[peer] = true;
  bury_at_ = 0;
  ways_.ring();
}

// ---- owner

bool Caching::exposes(Bucket bucket) const {
  return !memory_events::brackets().sight.blind() && !exposed_part(bucket).empty();
}

/// The part of a bucket that peers may have registered; empty: none.
Range Caching::exposed_part(Bucket bucket) const {
  const Exposes exposes = exposes_;
  const Range part = exposes == Exposes::nothing ? Range{} : ways_.exposed_part(size_.range(bucket));
  if (exposes != Exposes::own_segments) return part;
  LeasePath* const leases = LeasePath::running();
  return leases && leases->arena().is_own(part) ? part : Range{};
}

bool Caching::reserve(std::size_t actions) {
  const std::size_t most = actions + ways_.endpoint().peers() + kMostLooks;
  try {
    while (tasks_.size() + spare_.size() < most) spare_.emplace_back();
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

/// There is room for all but those of a revocation that was given up.
void Caching::add_task(const Task& task) {
  if (spare_.empty()) spare_.emplace_back();
  spare_.front() = task;
  tasks_.splice(tasks_.end(), spare_, spare_.begin());
  ways_.ring();
}

void Caching::pin(BucketRef ref) { add_task({Task::Kind::pin, ref, 0, monotonic_now()}); }

void Caching::unpin(BucketRef ref) { add_task({Task::Kind::unpin, ref, 0, monotonic_now()}); }

void Caching::served(Range memory) {
  if (pins_.bytes() == 0) return;
  const Bucket bucket = size_.of(memory.begin);
  const std::lock_guard lock(owner_mutex_);
  if (looks_ == kMostLooks || !owner_.lacks(memory, bucket)) return;
  ++looks_;
  add_task({Task::Kind::look, {bucket}, 0, 0, memory});
}

void Caching::cut_off(Peer peer) { add_task({Task::Kind::cut_off, {}, peer}); }

void Caching::revoked(Revocation revocation) { add_task({Task::Kind::revoked, {}, revocation}); }

// ---- the agent

void Caching::pin_now(const Task& task) {
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
  const std::lock_guard lock(owner_mutex_);
  if (error) return owner_.pin_failed(task.ref, error.code);
  pin_time_.add(monotonic_now() - task.since);
  owner_.moves_take(pin_time_.get() + unpin_time_.get());
  owner_.pinned(task.ref, parts);
}

void Caching::unpin_now(const Task& task) {
  pins_.unpin(task.ref.bucket);
  const std::lock_guard lock(owner_mutex_);
  unpin_time_.add(monotonic_now() - task.since);
  owner_.moves_take(pin_time_.get() + unpin_time_.get());
  owner_.unpinned(task.ref);
}

/// Its memory may have been mapped since its bucket was registered.
void Caching::look_now(const Task& task) {
  const Bucket bucket = task.ref.bucket;
  if (!Pins::would_pin(exposed_part(bucket), task.memory)) return;
  const std::lock_guard lock(owner_mutex_);
  owner_.renew(bucket);
}

/// Some may be held back still: by other sinks, by hooks at work on the same memory, by silent peers.
void Caching::carry_out_changes() {
  const bool done = memory_events::carry_out() == 0;
  carry_out_at_ = done ? kNever : monotonic_now() + kCarryOutAgain;
}

void Caching::revoked_now(Revocation revocation) {
  if (!recalls_.grant(revocation)) return;  // its hook goes on, and reports the end
  carry_out_changes();
  {
    const std::lock_guard lock(owner_mutex_);
    owner_.end_revocation(revocation);
  }
  recalls_.end(revocation);
}

void Caching::carry_out(const Task& task) {
  switch (task.kind) {
    case Task::Kind::pin:
      return pin_now(task);
    case Task::Kind::unpin:
      return unpin_now(task);
    case Task::Kind::revoked:
      return revoked_now(task.number);
    case Task::Kind::look:
      return look_now(task);
    case Task::Kind::cut_off:
      return ways_.cut_off(static_cast<Peer>(task.number));
  }
}

bool Caching::asked_for(std::uint64_t bytes) {
  const bool is_agent = Recalls::is_agent();
  if (pins_.bytes() == 0 || (is_agent && pinning_)) return false;
  missing_.store(bytes, std::memory_order_relaxed);
  ways_.ring();
  return !is_agent;  // which would wait for itself
}

void Caching::share_room(Time now) {
  const std::uint64_t missing = missing_.exchange(0, std::memory_order_relaxed);
  if (missing == 0 && now < grow_at_) return;
  const std::lock_guard lock(owner_mutex_);
  if (missing > 0) {
    const std::uint64_t registered = owner_.registered();
    owner_.resize(registered - std::min(registered, (missing + size_.bytes() - 1) / size_.bytes()), 0);
    grow_at_ = now + kGrowAgain;
    return;
  }
  const std::uint64_t buckets = std::min(quota_.buckets, 2 * owner_.quota().buckets + 1);
  const bool whole = buckets == quota_.buckets;
  owner_.resize(buckets, whole ? quota_.victims : 0);
  grow_at_ = whole ? kNever : now + kGrowAgain;
}

void Caching::begin_revocations() {
  for (Recalls::Asked asked; revoking_ || recalls_.take(asked); revoking_.reset()) {
    if (!revoking_) revoking_ = asked;  // until it has begun
    const Range whole{revoking_->range.begin, std::min(revoking_->range.end, kAddressEnd)};
    const std::lock_guard lock(owner_mutex_);
    owner_.revoke(revoking_->name, whole.empty() ? BucketRange{} : size_.touched(whole), revoking_->deadline);
  }
}

void Caching::end_revocations() {
  for (std::uint64_t name = 0; recalls_.take_over(name);) {
    {
      const std::lock_guard lock(owner_mutex_);
      owner_.late(monotonic_now());  // those for whom it was given up
      owner_.end_revocation(name);
    }
    recalls_.end(name);
  }
}

/// Peers whose processes have ended. Under the owner's lock.
void Caching::bury(Time now) {
  bury_at_ = kNever;
  for (Peer peer = 0; peer < outlives_.size(); ++peer) {
    if (!outlives_[peer]) continue;
    outlives_[peer] = ways_.endpoint().lives(peer);
    if (outlives_[peer])
      bury_at_ = now + kCarryOutAgain;
    else
      owner_.gone(peer);
  }
}

Time Caching::work() {
  Recalls::become_agent();
  for (;;) {
    end_revocations();
    begin_revocations();
    if (carry_out_at_ <= monotonic_now()) carry_out_changes();
    share_room(monotonic_now());
    std::unique_lock lock(owner_mutex_);
    if (bury_at_ <= monotonic_now()) bury(monotonic_now());
    if (tasks_.empty()) {
      const Time now = monotonic_now();
      if (owner_.deadline() <= now) owner_.late(now);
      if (tasks_.empty()) return std::min({owner_.deadline(), carry_out_at_, grow_at_, bury_at_});
    }
    const Task task = tasks_.front();
    spare_.splice(spare_.begin(), tasks_, tasks_.begin());
    looks_ -= task.kind == Task::Kind::look;
    lock.unlock();
    carry_out(task);
  }
}

void Caching::add_to(struct pinion_firehose_statistics& out) const {
  out.hits = hits_.load(std::memory_order_relaxed);
  out.misses = misses_.load(std::memory_order_relaxed);
  out.waited = waited_.load(std::memory_order_relaxed);
  out.moves = moves_.load(std::memory_order_relaxed);
  out.refusals = refusals_.load(std::memory_order_relaxed);
  out.sampled_hits = sampled_hits_.load(std::memory_order_relaxed);
  out.bookkeeping_ns = static_cast<std::uint64_t>(
      calibration().to_duration(bookkeeping_ticks_.load(std::memory_order_relaxed)));
  {
    const std::lock_guard lock(initiator_mutex_);
    out.buckets = initiator_.size();
    out.distinct_buckets = distinct_.count();
  }
  out.exposed_bytes = pins_.bytes();
  out.exposed_peak_bytes = pins_.peak_bytes();
  const std::lock_guard lock(owner_mutex_);
  const OwnerCounters& owner = owner_.counters();
  out.pins = owner.pins;
  out.unpins = owner.unpins;
  out.victim_hits = owner.victim_hits;
  out.recalls = owner.recalls;
  out.cut_off = owner.cut_off;
}

}  // namespace pinion::firehose
