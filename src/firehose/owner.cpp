#include "firehose/owner.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <utility>

namespace pinion::firehose {

namespace {

using Kind = OwnerAction::Kind;

template <class Object>
auto relaxed(const Object& atomic) {
  return atomic.load(std::memory_order_relaxed);
}

}  // namespace

Owner::Owner(const Quota& quota, Exposes exposes, const void* context)
    : quota_(quota),
      exposes_(exposes),
      context_(context),
      peers_(quota.processes),
      registrations_(quota_, actions_) {
  for (Peer peer = 0; peer < quota.processes; ++peer) peers_[peer].number = peer;
  actions_.reserve(most_actions(0, 0));
}

// ---- actions ----

/// An event sends each holder a grant or a refusal at most, each peer a limit or a recall, and starts or ends
/// each registration once.
std::size_t Owner::most_actions(std::size_t buckets, std::size_t revocations) const {
  return 2 * (holders_.size() + kMostMoved) + buckets + revocations + 2 * peers_.size() + 8;
}

OwnerAction* Owner::next() {
  while (OwnerAction* const action = actions_.pop_front()) {
    switch (action->kind) {
      case Kind::grant:
        answer_.grants.add({action->ref, registrations_.find(action->ref.bucket)->parts});
        break;
      case Kind::refuse:
        answer_.refusals.add({action->ref.bucket, action->error});
        break;
      default:
        return action;
    }
    actions_.put(*action);
  }
  return nullptr;
}

Message Owner::message_of(const OwnerAction& action) {
  if (action.kind == Kind::recall) return Recall{{action.ref.bucket, action.number}, action.ref.epoch};
  if (action.kind == Kind::limit)
    return Limit{action.limit, action.delay, static_cast<Duration>(action.number)};
  Answer answer = std::exchange(answer_, {});
  answer.limit = action.limit;
  answer.delay = action.delay;
  return answer;
}

/// Closes an answer: grants and refusals went before.
void Owner::answer(Peer to) {
  OwnerAction& action = actions_.add(Kind::answer);
  action.peer = to;
  action.limit = limit_of(peers_[to]);
  action.delay = registrations_.delay();
}

// ---- from peers ----

void Owner::move(Peer from, const Move& move) {
  PeerState& peer = peers_[from];
  if (peer.gone) return;
  for (const BucketRef& victim : move.victims) release_one(peer, victim);
  bool answers = false;
  for (Bucket bucket : move.wanted) answers |= want(peer, bucket);
  registrations_.start();
  if (answers) answer(from);
  press(peer, move.expected);
}

void Owner::release(Peer from, const Release& release) {
  for (const BucketRef& ref : release.firehoses) release_one(peers_[from], ref);
  registrations_.start();
}

void Owner::gone(Peer peer) {
  PeerState& at = peers_[peer];
  at.gone = true;
  while (Holder* holder = at.holders.front()) drop(*holder);
  registrations_.start();
}

int Owner::why_refused(const PeerState& peer, Bucket bucket) const {
  if (holders_.find(peer.number, bucket)) return EPROTO;
  if (exposes_ && !exposes_(context_, bucket)) return EPERM;
  if (revocations_.covers(bucket)) return EBUSY;
  const Registration* const of = registrations_.find(bucket);
  if (of && of->doomed) return EBUSY;
  if (quota_.sharing == Sharing::static_share && peer.holders.size() >= quota_.static_firehoses())
    return EDQUOT;
  if (!of && registrations_.is_congested()) return ENOSPC;
  const bool is_held = of && !of->holders.empty();
  return is_held || held_ < quota_.buckets ? 0 : ENOSPC;
}

/// Makes room for one more want. False: out of memory.
bool Owner::reserve() {
  try {
    registrations_.reserve();
    holder_pool_.reserve(1);
    holders_.reserve(1);
    actions_.reserve(most_actions(registrations_.size() + 1, revocations_.size()) + 2);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

/// True: it is granted or refused already.
bool Owner::want(PeerState& peer, Bucket bucket) {
  int error = why_refused(peer, bucket);
  if (!error && !reserve()) error = ENOMEM;
  if (error) {
    refuse(bucket, error);
    return true;
  }
  Registration* of = registrations_.find(bucket);
  if (!of) {
    of = &registrations_.add(bucket);
  } else if (of->state == State::pinned) {
    ++(of->holders.empty() ? counters_.victim_hits : counters_.shared_hits);
    if (of->holders.empty()) registrations_.leave_idle(*of);
  }
  if (of->holders.empty()) ++held_;
  Holder& holder = holder_pool_.take();
  holder.peer = peer.number;
  holder.bucket = bucket;
  holder.registration = of;
  holder.granted = false;
  holders_.insert(&holder);
  of->holders.push_back(holder);
  if (peer.holders.empty()) active_.push_back(peer);
  peer.holders.push_back(holder);
  if (of->state != State::pinned) return false;
  grant(holder);
  return true;
}

void Owner::grant(Holder& holder) {
  holder.granted = true;
  ++counters_.grants;
  actions_.add(Kind::grant).ref = holder.registration->ref();
}

void Owner::refuse(Bucket bucket, int error) {
  ++counters_.refusals;
  OwnerAction& action = actions_.add(Kind::refuse);
  action.ref.bucket = bucket;
  action.error = error;
}

/// Refuses the peers that wait for its registration.
void Owner::refuse_wants(Registration& of, int error) {
  for (Holder *holder = of.holders.front(), *next = nullptr; holder; holder = next) {
    next = Registration::Holders::next(*holder);
    if (holder->granted) continue;
    const Peer peer = relaxed(holder->peer);
    refuse(of.number(), error);
    const bool last = of.holders.size() == 1;
    drop(*holder);
    answer(peer);
    if (last) return;  // the registration may be gone with it
  }
}

void Owner::release_one(PeerState& peer, const BucketRef& ref) {
  Holder* holder = holders_.find(peer.number, ref.bucket);
  if (holder && holder->granted && holder->registration->epoch == ref.epoch) drop(*holder);
}

void Owner::drop(Holder& holder) {
  Registration& of = *holder.registration;
  PeerState& peer = peers_[relaxed(holder.peer)];
  of.holders.erase(holder);
  peer.holders.erase(holder);
  if (peer.holders.empty()) active_.erase(peer);
  holders_.erase(&holder);
  holder_pool_.put(holder);
  if (!of.holders.empty()) return;
  --held_;
  left_unused(of);
}

void Owner::left_unused(Registration& of) {
  if (of.state == State::waiting)
    make_absent(of);
  else if (of.state == State::pinned)
    of.doomed ? registrations_.unpin(of) : registrations_.make_idle(of);
  // Else pinned() or unpinned() decides.
}

void Owner::make_absent(Registration& of) {
  const Bucket bucket = of.number();
  registrations_.remove(of);
  revocations_.bucket_left(bucket, [this](Revocation name) { actions_.revoked(name); });
}

// ---- registrations ----

void Owner::pinned(BucketRef ref, const RemoteParts& parts) {
  Registration* const of = registrations_.find(ref, State::pinning);
  if (!of) return;
  ++counters_.pins;
  registrations_.pinned(*of, parts);
  if (of->holders.empty()) left_unused(*of);
  for (Holder* holder = of->holders.front(); holder; holder = Registration::Holders::next(*holder)) {
    grant(*holder);
    answer(relaxed(holder->peer));
  }
  registrations_.start();
}

void Owner::pin_failed(BucketRef ref, int error) {
  Registration* const of = registrations_.find(ref, State::pinning);
  if (!of) return;
  ++counters_.failed_pins;
  registrations_.failed();
  refuse_wants(*of, error);
  make_absent(*of);
  registrations_.start();
}

void Owner::unpinned(BucketRef ref) {
  Registration* const of = registrations_.find(ref, State::unpinning);
  if (!of) return;
  ++counters_.unpins;
  registrations_.unpinned(*of);
  if (of->holders.empty()) make_absent(*of);
  registrations_.start();
}

// ---- revocation ----

void Owner::revoke(Revocation revocation, BucketRange buckets, Time deadline) {
  actions_.reserve(most_actions(registrations_.size(), revocations_.size() + 1));
  Registrations::Found found = registrations_.in(buckets);
  revocations_.begin(revocation, buckets, deadline, found.size() + 1);
  ++recalls_;
  while (Registration* const of = found.pop_front())
    if (!of->doomed) doom(*of, buckets);
  // It counts one more than there are, so that its end comes once.
  if (revocations_.latest_left()) actions_.revoked(revocation);
  registrations_.start();
}

void Owner::doom(Registration& of, BucketRange buckets) {
  of.doomed = true;
  if (of.state != State::pinned) return refuse_wants(of, EBUSY);
  if (of.holders.empty()) {
    registrations_.leave_idle(of);
    return registrations_.unpin(of);
  }
  for (Holder* holder = of.holders.front(); holder; holder = Registration::Holders::next(*holder)) {
    PeerState& peer = peers_[relaxed(holder->peer)];
    if (peer.recall == recalls_) continue;
    peer.recall = recalls_;
    ++counters_.recalls;
    actions_.send(peer.number, Recall{buckets, registrations_.last_epoch()});
  }
}

void Owner::late(Time now) {
  revocations_.late(now, [this](BucketRange buckets) {
    Registrations::Found found = registrations_.in(buckets);
    while (const Registration* const of = found.pop_front()) {
      for (Holder* holder = of->holders.front(); holder; holder = Registration::Holders::next(*holder)) {
        PeerState& peer = peers_[relaxed(holder->peer)];
        if (peer.cut_off) continue;
        peer.cut_off = true;
        ++counters_.cut_off;
        actions_.add(Kind::cut_off).peer = peer.number;
      }
    }
  });
}

bool Owner::lacks(Range memory, Bucket bucket) {
  Registration* const of = registrations_.find(bucket);
  if (!of || of->state != State::pinned || of->doomed || part_of(of->parts, memory)) return false;
  return std::has_single_bit(++of->lacking);
}

void Owner::renew(Bucket bucket) {
  Registration* const of = registrations_.find(bucket);
  if (!of || of->state != State::pinned || of->doomed) return;
  ++recalls_;
  doom(*of, {bucket, 1});
  registrations_.start();
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

/// Asks for room where it is short: the next peer gives back firehoses that it will use later than the asking
/// one its own, by its prediction; and some of those that are lent to it, where the asking one is below its
/// share.
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
  registrations_.shrink();
  if (held_ > buckets) shrink_to(buckets);
  for (PeerState& peer : peers_) {
    if (!peer.denied || buckets == 0 || peer.gone) continue;
    peer.denied = false;
    actions_.send(peer.number, Limit{std::max(1u, limit_of(peer)), 0});
  }
  registrations_.start();
}

/// Each peer keeps the same part of its firehoses.
void Owner::shrink_to(std::uint64_t buckets) {
  while (Registration* const of = registrations_.first_waiting()) refuse_wants(*of, ENOSPC);
  for (PeerState* peer = active_.front(); peer; peer = active_.next(*peer)) {
    const std::uint64_t share = peer->holders.size() * buckets / held_;
    const std::uint64_t limit = quota_.sharing == Sharing::static_share ? quota_.static_firehoses() : share;
    peer->denied = limit == 0;
    actions_.send(peer->number, Limit{static_cast<std::uint32_t>(limit), 0});
  }
}

}  // namespace pinion::firehose
