#include "papers/firehose_job.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <unordered_set>
#include <vector>

#include "firehose/initiator.h"
#include "firehose/owner.h"
#include "simulate/random.h"

namespace pinion::simulate {

namespace {

using firehose::Bucket;
using firehose::Peer;

constexpr Peer kOwner = 0;  ///< the process that is put to; its peers are those above
constexpr Peer kNeighbours = 6;

/// Numbers below n, the k-th in proportion to 1 / (k + 1).
class Zipf {
 public:
  explicit Zipf(std::uint64_t n) : sums_(n) {
    double sum = 0;
    for (std::uint64_t k = 0; k < n; ++k) sums_[k] = sum += 1 / static_cast<double>(k + 1);
  }
  std::uint64_t draw(Random& random) const {
    const double at = random.unit() * sums_.back();
    return static_cast<std::uint64_t>(std::upper_bound(sums_.begin(), sums_.end(), at) - sums_.begin());
  }

 private:
  std::vector<double> sums_;
};

/// Which peers put, how often, and where.
class Puts {
 public:
  explicit Puts(const FirehoseJob& job) : job_(job), popular_(job.working_set), random_(job.seed) {}

  Peer peers() const {
    const Peer others = job_.quota.processes - 1;
    const bool many = job_.pattern == FirehosePattern::uniform || job_.pattern == FirehosePattern::skewed;
    return many ? others : std::min(others, kNeighbours);
  }
  Bucket next(Peer peer) {
    switch (job_.pattern) {
      case FirehosePattern::uniform:
        return random_.below(job_.working_set);
      case FirehosePattern::skewed:
        return peer * job_.working_set + popular_.draw(random_);
      case FirehosePattern::neighbours:
        return peer * job_.working_set + random_.below(job_.working_set);
      case FirehosePattern::periodic:
        return peer * job_.working_set + turn(peer);
      case FirehosePattern::strided: {
        const std::uint64_t now = turn(peer), rows = job_.working_set / kStride;
        return peer * job_.working_set + now % rows * kStride + now / rows;
      }
    }
    return 0;
  }
  Duration pause(Peer peer) {
    const double mean =
        static_cast<double>(job_.pause) * (job_.pattern == FirehosePattern::skewed ? peer : 1);
    return static_cast<Duration>(random_.between(0.5, 1.5) * mean);
  }

 private:
  static constexpr std::uint64_t kStride = 8;
  std::uint64_t turn(Peer peer) {
    turns_.resize(peers() + 1);
    return turns_[peer]++ % job_.working_set;
  }

  const FirehoseJob& job_;
  const Zipf popular_;
  Random random_;
  std::vector<std::uint64_t> turns_;  ///< by peer
};

/// Carries out the actions of the owner and of the initiators, at their times.
class FirehoseRun {
 public:
  explicit FirehoseRun(const FirehoseJob& job)
      : job_(job), puts_(job), pages_(job.bucket / page_size()), owner_(job.quota) {
    for (Peer peer = 1; peer <= puts_.peers(); ++peer)
      peers_.push_back(std::make_unique<PeerProcess>(*this, peer));
  }

  FirehoseResult run() {
    for (auto& peer : peers_) at(puts_.pause(peer->number), [p = peer.get()] { p->begin_put(); });
    while (!events_.empty()) {
      const Event event = std::move(const_cast<Event&>(events_.top()));
      events_.pop();
      count_registered(event.time);
      now_ = event.time;
      event.act();
    }
    const firehose::OwnerCounters& counters = owner_.counters();
    result_.pins = counters.pins;
    result_.unpins = counters.unpins;
    result_.victim_hits = counters.victim_hits;
    result_.shared_hits = counters.shared_hits;
    result_.peak = owner_.registrations().peak();
    if (now_ > warm_) result_.mean = registered_time_ / static_cast<double>(now_ - warm_);
    return result_;
  }

 private:
  struct Event {
    Time time;
    std::uint64_t number;  ///< events of one time happen in their order
    std::function<void()> act;
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  /// One of the others, with one put under way at a time.
  struct PeerProcess {
    PeerProcess(FirehoseRun& of, Peer self)
        : job(of), number(self), initiator(1, of.job_.quota.first_limit(), of.job_.quota.end_of_walks()) {
      initiator.operations_take(of.job_.put, 2 * of.job_.message);
      // With static shares, as in the paper, they wait for their buckets.
      waiter.light = of.job_.rides && of.job_.quota.sharing == firehose::Sharing::lending;
    }

    void begin_put() {
      if (job.begun_ == job.job_.puts) return;
      counted = 2 * job.begun_++ >= job.job_.puts;
      if (counted && !job.warm_) job.warm_ = job.now_;
      begun = job.now_;
      bucket = job.puts_.next(number);
      first = known.insert(bucket).second;
      hit = true;
      if (firehose::Firehose* firehose = initiator.try_use(kOwner, bucket)) return put(firehose);
      hit = false;
      initiator.at(job.now_);
      const auto need = initiator.need(kOwner, bucket, waiter);
      if (initiator.flush() && job.job_.rides) {
        send(initiator.next_message()->message);
        initiator.rode(kOwner, bucket);
        job.at(2 * job.job_.message, [this] {
          initiator.rider_ended(kOwner, bucket);
          end_put();
        });
      }
      act();
      if (need.what == firehose::Initiator::Need::by_message) by_message();
    }
    /// Carries out what an event has asked for.
    void act() {
      while (const auto sent = initiator.next_message()) send(sent->message);
      while (const firehose::Waiter* const answered = initiator.next_answered())
        answered->firehose ? put(answered->firehose) : by_message();
    }
    void put(firehose::Firehose* firehose) {
      job.at(job.job_.put, [this, firehose] {
        if (initiator.end_use(*firehose)) initiator.drained(*firehose);
        act();
        end_put();
      });
    }
    void by_message() {
      job.result_.refused += counted;
      job.at(2 * job.job_.message, [this] { end_put(); });
    }
    void end_put() {
      if (counted) job.count(*this);
      job.at(job.puts_.pause(number), [this] { begin_put(); });
    }

    void send(const firehose::Message& message) {
      ++job.result_.messages;
      job.at(job.job_.message, [this, message] { job.at_owner(number, message); });
    }

    FirehoseRun& job;
    const Peer number;
    firehose::Initiator initiator;
    firehose::Waiter waiter;
    std::unordered_set<Bucket> known;
    Bucket bucket = 0;  ///< of its put
    Time begun = 0;
    bool counted = false, first = false, hit = false;
  };

  template <class Act>
  void at(Duration later, Act&& act) {
    events_.push({now_ + later, ++events_ever_, std::forward<Act>(act)});
  }

  void count(const PeerProcess& peer) {
    ++result_.puts;
    result_.hits += peer.hit;
    result_.first += peer.first;
    (peer.hit ? result_.hit_time : result_.miss_time) += now_ - peer.begun;
  }
  void count_registered(Time until) {
    if (warm_)
      registered_time_ +=
          static_cast<double>(owner_.registrations().registered()) * static_cast<double>(until - now_);
  }

  void at_owner(Peer from, const firehose::Message& message) {
    if (const auto* move = std::get_if<firehose::Move>(&message)) owner_.move(from, *move);
    if (const auto* release = std::get_if<firehose::Release>(&message)) owner_.release(from, *release);
    act();
  }
  void at_peer(PeerProcess& peer, const firehose::Message& message) {
    if (const auto* answer = std::get_if<firehose::Answer>(&message)) peer.initiator.answer(kOwner, *answer);
    peer.initiator.at(now_);
    if (const auto* limit = std::get_if<firehose::Limit>(&message)) peer.initiator.limit(kOwner, *limit);
    peer.act();
  }

  /// Carries out what an event of the owner has asked for.
  void act() {
    while (firehose::OwnerAction* const action = owner_.next()) {
      if (action->is_message())
        send(action->peer, owner_.message_of(*action));
      else if (action->kind == firehose::OwnerAction::Kind::pin)
        pin(action->ref);
      else if (action->kind == firehose::OwnerAction::Kind::unpin)
        unpin(action->ref);
      owner_.put(*action);
    }
  }
  void send(Peer to, const firehose::Message& message) {
    ++result_.messages;
    at(job_.message, [this, to, message] { at_peer(*peers_[to - 1], message); });
  }
  void pin(firehose::BucketRef ref) {
    device_call(job_.nic.register_cost(pages_), [this, ref] {
      const Address begin = ref.bucket * job_.bucket;
      owner_.pinned(ref, {{{begin, begin + job_.bucket, begin, ref.epoch}}, 1});
      act();
    });
  }
  void unpin(firehose::BucketRef ref) {
    device_call(job_.nic.deregister_cost(pages_), [this, ref] {
      owner_.unpinned(ref);
      act();
    });
  }

  /// The owner's device makes one call after the other.
  template <class Act>
  void device_call(Duration lasts, Act&& then) {
    device_free_ = std::max(device_free_, now_) + lasts;
    at(device_free_ - now_, std::forward<Act>(then));
  }

  const FirehoseJob& job_;
  Puts puts_;
  const std::size_t pages_;
  firehose::Owner owner_;
  std::vector<std::unique_ptr<PeerProcess>> peers_;
  std::priority_queue<Event> events_;
  std::uint64_t events_ever_ = 0;
  std::uint64_t begun_ = 0;
  Time now_ = 0;
  Time warm_ = 0;  ///< when the second half began
  Time device_free_ = 0;
  double registered_time_ = 0;
  FirehoseResult result_;
};

}  // namespace

FirehoseResult simulate_firehose(const FirehoseJob& job) { return FirehoseRun(job).run(); }

FirehoseResult simulate_fifo(const FirehoseJob& job) {
  struct Held {
    std::deque<Bucket> oldest;
    std::unordered_set<Bucket> all;
  };
  Puts puts(job);
  std::vector<Held> held(puts.peers() + 1);
  std::priority_queue<std::pair<Time, Peer>, std::vector<std::pair<Time, Peer>>, std::greater<>> next;
  for (Peer peer = 1; peer <= puts.peers(); ++peer) next.emplace(puts.pause(peer), peer);
  FirehoseResult result;
  for (std::uint64_t i = 0; i < job.puts; ++i) {
    const auto [now, peer] = next.top();
    next.pop();
    Held& of = held[peer];
    const Bucket bucket = puts.next(peer);
    const bool hit = !of.all.insert(bucket).second;
    if (!hit) of.oldest.push_back(bucket);
    if (of.oldest.size() > job.quota.static_firehoses()) {
      of.all.erase(of.oldest.front());
      of.oldest.pop_front();
    }
    result.puts += 2 * i >= job.puts;
    result.hits += hit && 2 * i >= job.puts;
    next.emplace(now + job.put + puts.pause(peer), peer);
  }
  return result;
}

FirehoseResult simulate_rendezvous(const FirehoseJob& job, bool unpins) {
  FirehoseResult result;
  Puts puts(job);
  const std::size_t pages = job.bucket / page_size();
  std::unordered_set<Bucket> pinned;
  Time now = 0, device_free = 0;
  for (std::uint64_t i = 0; i < job.puts; ++i) {
    const Time begun = now;
    const Bucket bucket = puts.next(1);
    now += job.message;
    const bool first = pinned.insert(bucket).second;
    if (unpins || first) {
      now = std::max(now, device_free) + job.nic.register_cost(pages);
      ++result.pins;
    }
    now += job.message + job.put;
    if (unpins) {
      device_free = now + job.message + job.nic.deregister_cost(pages);
      ++result.unpins;
    }
    result.messages += 2 + unpins;
    if (2 * i >= job.puts) {
      ++result.puts;
      result.first += first;
      result.miss_time += now - begun;
    }
    now += puts.pause(1);
  }
  result.peak = unpins ? 1 : pinned.size();
  result.mean = static_cast<double>(result.peak);
  return result;
}

}  // namespace pinion::simulate
