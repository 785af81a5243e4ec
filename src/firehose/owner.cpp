#include "firehose/owner.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

namespace pinion::firehose {

namespace {

constexpr Peer kNone = 0;  ///< the peer of entries: they belong to buckets alone

template <class Object>
auto relaxed(const Object& atomic) {
  return atomic.load(std::memory_order_relaxed);
}

}  // namespace

Owner::Owner(const Quota& quota, OwnerActions& actions)
    : quota_(quota), actions_(actions), peers_(quota.processes) {
  for (Peer peer = 0; peer < quota.processes; ++peer) peers_[peer].number = peer;
}

// ---- from peers ----

void Owner::move(Peer from, const Move& move) {
  PeerState& peer = peers_[from];
  if (peer.gone) return;
  for (const BucketRef& victim : move.victims) release_one(peer, victim);
  Answer answer;
  for (Bucket bucket : move.wanted) want(peer, bucket, answer);
  start_pins();
  send(from, answer);
  press(peer, move.expected);
}

void Owner::release(Peer from, const Release& release) {
  for (const BucketRef& ref : release.firehoses) release_one(peers_[from], ref);
  start_pins();
}

void Owner::gone(Peer peer) {
  PeerState& at = peers_[peer];
  at.gone = true;
  while (Holder* holder = at.holders.front()) drop(*holder);
  start_pins();
}

int Owner::why_refused(const PeerState& peer, Bucket bucket) const {
  if (holders_.find(peer.number, bucket)) return EPROTO;
  if (!actions_.exposes(bucket)) return EPERM;
  for (const Revoking& revoking : revoking_)
    if (revoking.buckets.contains(bucket)) return EBUSY;
  const Entry* entry = entries_.find(kNone, bucket);
  if (entry && entry->doomed) return EBUSY;
  if (quota_.sharing == Sharing::static_share && peer.holders.size() >= quota_.static_firehoses())
    return EDQUOT;
  if (!entry && is_congested()) return ENOSPC;
  const bool is_held = entry && !entry->holders.empty();
  return is_held || held_ < quota_.buckets ? 0 : ENOSPC;
}

/// So many moves queue that one more would help late; each peer would also remember the queue as its delay().
bool Owner::is_congested() const {
  return quota_.sharing == Sharing::lending && registered_ >= quota_.most() &&
         waiting_.size() + pinning_ >= kMostQueued;
}

/// Room for one more want. False: out of memory.
bool Owner::reserve() {
  try {
    entry_pool_.reserve(1);
    entries_.reserve(1);
    holder_pool_.reserve(1);
    holders_.reserve(1);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return actions_.reserve(entries_.size() + 1 + revoking_.size());
}

void Owner::want(PeerState& peer, Bucket bucket, Answer& answer) {
  int error = why_refused(peer, bucket);
  if (!error && !reserve()) error = ENOMEM;
  if (error) {
    refuse(bucket, error, answer);
    return;
  }
  Entry* entry = entries_.find(kNone, bucket);
  if (!entry) {
    entry = &entry_pool_.take();
    entry->bucket = bucket;
    entry->doomed = false;
    entry->state = State::waiting;
    entries_.insert(entry);
    waiting_.push_back(*entry);
  } else if (entry->state == State::pinned) {
    ++(entry->holders.empty() ? counters_.victim_hits : counters_.shared_hits);
    if (entry->holders.empty()) fifo_.erase(*entry);
  }
  if (entry->holders.empty()) ++held_;
  Holder& holder = holder_pool_.take();
  holder.peer = peer.number;
  holder.bucket = bucket;
  holder.entry = entry;
  holder.granted = false;
  holders_.insert(&holder);
  entry->holders.push_back(holder);
  if (peer.holders.empty()) active_.push_back(peer);
  peer.holders.push_back(holder);
  if (entry->state == State::pinned) grant(holder, answer);
}

void Owner::grant(Holder& holder, Answer& answer) {
  const Entry& entry = *holder.entry;
  holder.granted = true;
  ++counters_.grants;
  answer.grants.add({{relaxed(entry.bucket), entry.epoch}, entry.parts});
}

void Owner::refuse(Bucket bucket, int error, Answer& answer) {
  ++counters_.refusals;
  answer.refusals.add({bucket, error});
}

/// Of those that wait for its registration.
void Owner::refuse_wants(Entry& entry, int error) {
  for (Holder *holder = entry.holders.front(), *next = nullptr; holder; holder = next) {
    next = EntryHolders::next(*holder);
    if (holder->granted) continue;
    const Peer peer = relaxed(holder->peer);
    Answer answer;
    refuse(relaxed(entry.bucket), error, answer);
    const bool last = entry.holders.size() == 1;
    drop(*holder);
    send(peer, answer);
    if (last) return;  // the entry may be gone with it
  }
}

void Owner::release_one(PeerState& peer, const BucketRef& ref) {
  Holder* holder = holders_.find(peer.number, ref.bucket);
  if (holder && holder->granted && holder->entry->epoch == ref.epoch) drop(*holder);
}

void Owner::drop(Holder& holder) {
  Entry& entry = *holder.entry;
  PeerState& peer = peers_[relaxed(holder.peer)];
  entry.holders.erase(holder);
  peer.holders.erase(holder);
  if (peer.holders.empty()) active_.erase(peer);
  holders_.erase(&holder);
  holder_pool_.put(holder);
  if (!entry.holders.empty()) return;
  --held_;
  left_unused(entry);
}

void Owner::left_unused(Entry& entry) {
  switch (entry.state) {
    case State::waiting:
      waiting_.erase(entry);
      make_absent(entry);
      return;
    case State::pinned:
      if (entry.doomed)
        unpin(entry);
      else
        make_idle(entry);
      return;
    case State::pinning:  // pinned() decides
    case State::unpinning:
      return;
  }
}

// ---- registrations ----

void Owner::make_idle(Entry& entry) {
  fifo_.push_back(entry);
  const bool full = quota_.sharing == Sharing::static_share ? fifo_.size() > quota_.victims
                                                            : registered_ - unpinning_ > quota_.most();
  if (full) unpin_oldest();
}

void Owner::unpin(Entry& entry) {
  entry.state = State::unpinning;
  ++unpinning_;
  actions_.unpin({relaxed(entry.bucket), entry.epoch});
}

void Owner::unpin_oldest() {
  Entry& oldest = *fifo_.front();
  fifo_.erase(oldest);
  unpin(oldest);
}

void Owner::start_pins() {
  while (!waiting_.empty() && registered_ < quota_.most()) {
    Entry& entry = *waiting_.front();
    waiting_.erase(entry);
    entry.epoch = ++last_epoch_;
    entry.state = State::pinning;
    ++pinning_;
    counters_.peak = std::max(counters_.peak, ++registered_);
    actions_.pin({relaxed(entry.bucket), entry.epoch});
  }
  while (unpinning_ < waiting_.size() && !fifo_.empty()) unpin_oldest();
}

Owner::Entry* Owner::entry_of(BucketRef ref, State state) {
  Entry* entry = entries_.find(kNone, ref.bucket);
  return entry && entry->epoch == ref.epoch && entry->state == state ? entry : nullptr;
}

void Owner::pinned(BucketRef ref, const RemoteParts& parts) {
  Entry* entry = entry_of(ref, State::pinning);
  if (!entry) return;
  ++counters_.pins;
  --pinning_;
  entry->state = State::pinned;
  entry->parts = parts;
  entry->lacking = 0;
  if (entry->holders.empty()) {
    left_unused(*entry);
  } else {
    for (Holder* holder = entry->holders.front(); holder; holder = EntryHolders::next(*holder)) {
      Answer answer;
      grant(*holder, answer);
      send(relaxed(holder->peer), answer);
    }
  }
  start_pins();
}

void Owner::pin_failed(BucketRef ref, int error) {
  Entry* entry = entry_of(ref, State::pinning);
  if (!entry) return;
  ++counters_.failed_pins;
  --pinning_;
  --registered_;
  refuse_wants(*entry, error);
  make_absent(*entry);
  start_pins();
}

void Owner::unpinned(BucketRef ref) {
  Entry* entry = entry_of(ref, State::unpinning);
  if (!entry) return;
  ++counters_.unpins;
  --registered_;
  --unpinning_;
  if (entry->holders.empty()) {
    make_absent(*entry);
  } else {  // wanted again meanwhile
    entry->state = State::waiting;
    waiting_.push_back(*entry);
  }
  start_pins();
}

void Owner::make_absent(Entry& entry) {
  const Bucket bucket = relaxed(entry.bucket);
  entries_.erase(&entry);
  entry_pool_.put(entry);
  for (Revoking& revoking : revoking_)
    if (revoking.buckets.contains(bucket) && --revoking.left == 0) actions_.revoked(revoking.name);
}

// ---- revocation ----

Owner::Found Owner::entries_in(BucketRange buckets) {
  Found found;
  if (buckets.count <= entries_.size()) {
    for (std::uint64_t i = 0; i < buckets.count; ++i)
      if (Entry* entry = entries_.find(kNone, buckets.first + i)) found.push_back(*entry);
  } else {
    entries_.for_each([&](Entry& entry) {
      if (buckets.contains(relaxed(entry.bucket))) found.push_back(entry);
    });
  }
  return found;
}

void Owner::revoke(Revocation revocation, BucketRange buckets, Time deadline) {
  if (!actions_.reserve(entries_.size() + revoking_.size() + 1)) throw std::bad_alloc();
  Found entries = entries_in(buckets);
  revoking_.push_back({revocation, buckets, deadline, entries.size() + 1});
  ++recalls_;
  while (Entry* entry = entries.pop_front())
    if (!entry->doomed) doom(*entry, buckets);
  Revoking& last = revoking_.back();  // one more than there are: its end comes once
  if (--last.left == 0) actions_.revoked(revocation);
  start_pins();
}

void Owner::doom(Entry& entry, BucketRange buckets) {
  entry.doomed = true;
  if (entry.state != State::pinned) {
    refuse_wants(entry, EBUSY);
    return;
  }
  if (entry.holders.empty()) {
    fifo_.erase(entry);
    unpin(entry);
    return;
  }
  for (Holder* holder = entry.holders.front(); holder; holder = EntryHolders::next(*holder)) {
    PeerState& peer = peers_[relaxed(holder->peer)];
    if (peer.recall == recalls_) continue;
    peer.recall = recalls_;
    ++counters_.recalls;
    actions_.send(peer.number, Recall{buckets, last_epoch_});
  }
}

void Owner::end_revocation(Revocation revocation) {
  std::erase_if(revoking_, [&](const Revoking& of) { return of.name == revocation; });
}

Time Owner::deadline() const {
  Time first = kNever;
  for (const Revoking& revoking : revoking_)
    if (revoking.left) first = std::min(first, revoking.deadline);
  return first;
}

void Owner::late(Time now) {
  for (Revoking& revoking : revoking_) {
    if (revoking.left == 0 || revoking.deadline > now) continue;
    revoking.deadline = kNever;
    Found entries = entries_in(revoking.buckets);
    while (const Entry* entry = entries.pop_front()) {
      for (Holder* holder = entry->holders.front(); holder; holder = EntryHolders::next(*holder)) {
        PeerState& peer = peers_[relaxed(holder->peer)];
        if (peer.cut_off) continue;
        peer.cut_off = true;
        ++counters_.cut_off;
        actions_.cut_off(peer.number);
      }
    }
  }
}

bool Owner::lacks(Range memory, Bucket bucket) {
  Entry* entry = entries_.find(kNone, bucket);
  if (!entry || entry->state != State::pinned || entry->doomed || part_of(entry->parts, memory)) return false;
  return std::has_single_bit(++entry->lacking);
}

void Owner::renew(Bucket bucket) {
  Entry* entry = entries_.find(kNone, bucket);
  if (!entry || entry->state != State::pinned || entry->doomed) return;
  ++recalls_;
  doom(*entry, {bucket, 1});
  start_pins();
}

// ---- shares ----

std::uint32_t Owner::limit_of(const PeerState& peer) const {
  if (quota_.sharing == Sharing::static_share) return quota_.static_firehoses();
  if (quota_.buckets == 0) return 0;
  const std::uint64_t held = peer.holders.size();
  const std::uint64_t free = quota_.buckets - std::min(quota_.buckets, held_);
  std::uint64_t limit = held;
  if (free > quota_.reserve())
    limit += free - quota_.reserve();
  else if (held < quota_.static_firehoses())
    limit += std::min<std::uint64_t>(free, kMostMoved);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(limit, 1, UINT32_MAX));
}

/// While memory is left, a bucket costs its registration once. After that it costs another's deregistration,
/// too, and waits for those under way.
std::uint32_t Owner::delay() const {
  if (quota_.sharing == Sharing::static_share || registered_ < quota_.most()) return 0;
  const std::uint64_t moves = 1 + waiting_.size() + pinning_;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(static_cast<std::uint64_t>(quota_.move_time) * moves, UINT32_MAX));
}

/// Where room is short, the next peer gives back firehoses that it will use later than the asking one its
/// own, by its prediction; and some of those that are lent to it, where the asking one is below its share.
void Owner::press(const PeerState& asking, Duration expected) {
  if (quota_.sharing == Sharing::static_share || active_.empty()) return;
  const std::uint64_t free = quota_.buckets - std::min(quota_.buckets, held_);
  if (free > quota_.reserve()) return;
  PeerState* asked = &active_.rotate();
  if (asked == &asking) asked = &active_.rotate();
  if (asked == &asking) return;  // it has chosen its victims
  const std::uint64_t holds = asked->holders.size();
  const std::uint64_t share = quota_.static_firehoses();
  std::uint64_t limit = holds;
  if (asking.holders.size() < share && holds > share)
    limit = std::max(share, holds - std::min<std::uint64_t>(holds, kMostMoved));
  const std::uint64_t spare = quota_.reserve() - free + kMostMoved;
  actions_.send(asked->number, Limit{static_cast<std::uint32_t>(std::max<std::uint64_t>(limit, 1)),
                                     static_cast<std::uint32_t>(spare), expected});
}

void Owner::resize(std::uint64_t buckets, std::uint64_t victims) {
  quota_.buckets = buckets;
  quota_.victims = victims;
  const std::size_t most_idle =
      quota_.sharing == Sharing::static_share ? victims : static_cast<std::size_t>(quota_.most());
  while (!fifo_.empty() && (fifo_.size() > most_idle || registered_ - unpinning_ > quota_.most()))
    unpin_oldest();
  if (held_ > buckets) shrink_to(buckets);
  for (PeerState& peer : peers_) {
    if (!peer.denied || buckets == 0 || peer.gone) continue;
    peer.denied = false;
    actions_.send(peer.number, Limit{std::max(1u, limit_of(peer)), 0});
  }
  start_pins();
}

/// Each peer keeps the same part of its firehoses.
void Owner::shrink_to(std::uint64_t buckets) {
  while (!waiting_.empty()) refuse_wants(*waiting_.front(), ENOSPC);
  for (PeerState* peer = active_.front(); peer; peer = active_.next(*peer)) {
    const std::uint64_t share = peer->holders.size() * buckets / held_;
    const std::uint64_t limit = quota_.sharing == Sharing::static_share ? quota_.static_firehoses() : share;
    peer->denied = limit == 0;
    actions_.send(peer->number, Limit{static_cast<std::uint32_t>(limit), 0});
  }
}

void Owner::send(Peer to, Answer& answer) {
  if (answer.grants.count == 0 && answer.refusals.count == 0) return;
  answer.limit = limit_of(peers_[to]);
  answer.delay = delay();
  actions_.send(to, answer);
}

}  // namespace pinion::firehose
