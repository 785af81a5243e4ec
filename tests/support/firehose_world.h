// A made job for the firehose protocol: processes with an Owner and an Initiator each, the messages, puts and
// registrations under way between them, and memory that changes. Every event is a step that the test chooses,
// so it can try all orders. A world is made anew for each order.
//
// The world checks the law at each step: a put lands in memory that is registered, and that is still the
// memory that was registered; memory changes while none of it is registered; at most M + MAXVICTIM is.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "firehose/data_message.h"
#include "firehose/initiator.h"
#include "firehose/owner.h"
#include "firehose/waiting_atomics.h"

namespace pinion::test {

namespace fh = pinion::firehose;

/// Faults that are planted to see that they are found.
enum class Fault {
  none,
  change_without_recall,  ///< memory changes at once
  release_too_early,      ///< a recalled holder releases while its uses go on
  use_not_counted,        ///< a put is posted after its use has ended
  overtaking,             ///< a peer's messages arrive in another order
  lost_release,
  granting_while_revoking,  ///< wants of a bucket are granted before its memory has changed
  unpins_count_at_once,     ///< a deregistration counts as ended when it begins
  waiting_in_progress       ///< an atomic on changing memory keeps its owner from hearing its peers
};

struct MadePut {
  fh::Peer to;
  std::vector<fh::Bucket> buckets;
  bool is_atomic = false;  ///< one word of the first bucket, by message
};

struct MadeJob {
  fh::Quota quota;                                        ///< of every process; its number, too
  std::vector<std::vector<MadePut>> puts;                 ///< of each process, in this order
  std::vector<std::vector<fh::BucketRange>> revocations;  ///< of each
  bool pins_fail = false;                                 ///< each may
  bool one_dies = false;                                  ///< the last process, at any time
  bool timeouts = false;                                  ///< a recall's deadline may pass at any time
  bool gives_up = false;  ///< a revocation may end before its holders let go: its memory stays
  bool rides = false;     ///< small puts travel with their misses
  bool predicts = false;  ///< initiators have a clock, and know what operations take
  bool cuts = false;      ///< the last process may find no memory for a message to the first: it cuts it off
  unsigned resized = 0;   ///< times: the first process's memory for peers halves, and grows again
  unsigned renewed = 0;   ///< times: peers let go of the first process's bucket 0
  Fault fault = Fault::none;
};

inline constexpr fh::BucketSize kMadeBucket{1u << 16};

class FirehoseWorld {
 public:
  struct Step {
    enum Kind {
      deliver,
      overtake,
      put,
      land,
      serve,
      device,
      fail,
      revoke,
      change,
      give_up,
      timeout,
      die,
      notice,
      resize,
      renew,
      cut
    } kind;
    unsigned process = 0;
    unsigned other = 0;
  };

  explicit FirehoseWorld(const MadeJob& job) : job_(job) {
    for (fh::Peer i = 0; i < job.quota.processes; ++i)
      processes_.push_back(std::make_unique<Process>(*this, i, job.quota));
  }

  /// Empty while the law holds.
  const std::string& violation() const { return violation_; }

  std::vector<Step> steps() const {
    std::vector<Step> steps;
    for (unsigned i = 0; i < processes_.size(); ++i) {
      const Process& p = *processes_[i];
      if (!p.alive) continue;
      const auto add = [&](Step::Kind kind, unsigned other = 0) { steps.push_back({kind, i, other}); };
      for (unsigned j = 0; j < processes_.size(); ++j) {
        const auto& from_j = processes_[j]->sent[i];
        if (!from_j.empty() && !p.is_stuck()) add(Step::deliver, j);
        if (job_.fault == Fault::overtaking && from_j.size() > 1) add(Step::overtake, j);
        if (p.must_notice[j]) add(Step::notice, j);
      }
      if (p.next_put < count(job_.puts, i)) add(Step::put);
      for (unsigned k = 0; k < p.posted.size(); ++k) add(Step::land, k);
      if (p.can_serve()) add(Step::serve);
      for (unsigned k = 0; k < p.device_work.size(); ++k) {
        add(Step::device, k);
        if (job_.pins_fail && p.device_work[k].pins) add(Step::fail, k);
      }
      if (p.next_revocation < count(job_.revocations, i)) add(Step::revoke);
      for (unsigned k = 0; k < p.revoked_now.size(); ++k) add(Step::change, k);
      if (job_.gives_up && p.revoking.size() > p.revoked_now.size()) add(Step::give_up);
      if (job_.timeouts && p.owner.deadline() != kNever) add(Step::timeout);
      if (job_.one_dies && i + 1 == processes_.size()) add(Step::die);
      if (i == 0 && p.resized < job_.resized) add(Step::resize);
      if (i == 0 && p.renewed < job_.renewed) add(Step::renew);
      if (job_.cuts && i + 1 == processes_.size() && !p.cut[0]) add(Step::cut);
    }
    return steps;
  }

  void take(const Step& step) {
    Process& p = *processes_[step.process];
    switch (step.kind) {
      case Step::deliver:
        deliver(*processes_[step.other], p, 0);
        break;
      case Step::overtake:
        deliver(*processes_[step.other], p, 1);
        break;
      case Step::put:
        p.begin_put(job_.puts[step.process][p.next_put++]);
        break;
      case Step::land:
        land(p, step.other);
        break;
      case Step::serve:
        p.serve_waiting();
        break;
      case Step::device:
        p.finish_device_work(step.other, false);
        break;
      case Step::fail:
        p.finish_device_work(step.other, true);
        break;
      case Step::revoke:
        p.begin_revocation(job_.revocations[step.process][p.next_revocation++]);
        break;
      case Step::change:
        p.change(step.other);
        break;
      case Step::give_up:
        p.give_up();
        break;
      case Step::timeout:
        p.owner.late(kDeadline);
        p.act_as_owner();
        break;
      case Step::die:
        p.die();
        break;
      case Step::notice:
        p.notice(step.other);
        break;
      case Step::resize:
        p.resized++ == 0 ? p.owner.resize(job_.quota.buckets / 2, job_.quota.victims)
                         : p.owner.resize(job_.quota.buckets, job_.quota.victims);
        p.act_as_owner();
        break;
      case Step::renew:
        ++p.renewed;
        p.owner.renew(0);
        p.act_as_owner();
        break;
      case Step::cut:
        p.cut_off_by_itself(*processes_[0]);
        break;
    }
    for (const auto& process : processes_) check(*process);
  }

  /// Checks the end, when no step is left.
  void check_end() {
    for (const auto& of : processes_) {
      const Process& p = *of;
      if (!p.alive) continue;
      for (const auto& operation : p.operations) {
        if (!operation->done) violate("an operation never ends");
        if (operation->applied > 1) violate("an atomic is applied twice");
      }
      if (p.revocations_left) violate("a revocation never ends");
      for (const auto& peer : processes_)
        if (peer->alive && !p.lost[peer->number] && !peer->lost[p.number] &&
            p.initiator.held(peer->number) != peer->owner.firehoses(p.number))
          violate("owner and initiator count differently");
    }
  }

  /// Revokes all memory; no step is left before. Afterwards nothing is held or registered.
  void revoke_all() {
    job_.puts.clear();
    job_.revocations.clear();
    job_.one_dies = job_.gives_up = job_.timeouts = job_.pins_fail = job_.cuts = false;
    job_.resized = job_.renewed = 0;
    for (const auto& p : processes_)
      if (p->alive) p->begin_revocation({0, 1u << 20});
    for (auto left = steps(); !left.empty() && violation_.empty(); left = steps()) take(left.front());
    check_end();
    for (const auto& p : processes_) {
      if (!p->alive) continue;
      if (p->owner.registrations().registered() || !p->registered.empty()) violate("memory stays registered");
      if (p->initiator.size()) violate("firehoses stay held");
    }
  }

  /// Equal worlds have equal values: those of the state that decides about later steps.
  std::uint64_t fingerprint() const {
    std::uint64_t hash = 0;
    const auto mix = [&](std::uint64_t value) {
      hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
      hash ^= hash >> 29;
    };
    for (const auto& p : processes_) p->mix_into(mix);
    return hash;
  }

 private:
  struct Process;
  struct Operation : fh::Waiter {
    fh::Peer to = 0;
    fh::Bucket bucket = 0;
    bool done = false;
    bool is_atomic = false;
    unsigned applied = 0;  ///< times, if it is an atomic
  };
  /// A put that the network carries.
  struct Posted {
    Operation* operation;
    fh::Firehose* firehose;
    fh::BucketRef ref;
    bool use_ended = false;
  };
  struct Registration {
    std::uint64_t version;
    bool usable;
  };
  struct DeviceWork {
    fh::BucketRef ref;
    bool pins;
  };
  struct Revoked {
    fh::Revocation name;
    fh::BucketRange buckets;
  };
  using Wire = std::vector<std::byte>;
  static constexpr Time kDeadline = 1;
  /// Begins messages with data; control messages begin otherwise.
  static constexpr std::byte kDataMark{0xff};

  struct Process {
    Process(FirehoseWorld& in, fh::Peer self, const fh::Quota& quota)
        : world(in),
          number(self),
          initiator(quota.processes, quota.first_limit()),
          owner(quota),
          sent(quota.processes),
          must_notice(quota.processes),
          lost(quota.processes),
          cut(quota.processes) {
      if (in.job_.predicts) initiator.operations_take(1, 100);
    }

    // ---- actions ----
    /// Carries out what an event of the initiator asks for.
    void act_as_initiator() {
      while (const auto sent = initiator.next_message()) send(sent->to, sent->message);
      while (auto* const operation = static_cast<Operation*>(initiator.next_answered()))
        operation->firehose ? post(*operation, *operation->firehose) : void(operation->done = true);
    }
    /// Carries out what an event of the owner asks for.
    void act_as_owner() {
      using Kind = fh::OwnerAction::Kind;
      while (fh::OwnerAction* const action = owner.next()) {
        const fh::OwnerAction now = *action;
        if (action->is_message()) send(action->peer, owner.message_of(*action));
        owner.put(*action);
        if (now.kind == Kind::pin) pin(now.ref);
        if (now.kind == Kind::unpin) unpin(now.ref);
        if (now.kind == Kind::cut_off) cut_off(now.peer);
        if (now.kind == Kind::revoked) finish_revocation(now.number);
      }
    }
    void send(fh::Peer to, const fh::Message& message) {
      if (lost[to] || cut[to] || !world.processes_[to]->alive) return;
      if (world.job_.fault == Fault::lost_release && std::holds_alternative<fh::Release>(message)) return;
      Wire wire(fh::kMostMessage);
      wire.resize(fh::encode(message, wire.data()));
      sent[to].push_back(std::move(wire));
    }
    void pin(fh::BucketRef ref) {
      registered[{ref.bucket, ref.epoch}] = {version[ref.bucket], false};
      device_work.push_back({ref, true});
    }
    void unpin(fh::BucketRef ref) {
      device_work.push_back({ref, false});
      if (world.job_.fault == Fault::unpins_count_at_once) owner.unpinned(ref);
    }
    void cut_off(fh::Peer peer) {
      world.processes_[peer]->must_notice[number] = true;
      must_notice[peer] = true;
    }

    // ---- events ----
    void look_at_clock() {
      if (world.job_.predicts) initiator.at(1000 * static_cast<Time>(1 + next_put));
    }
    void begin_put(const MadePut& put) {
      look_at_clock();
      if (put.is_atomic) return begin_atomic(put);
      for (const fh::Bucket bucket : put.buckets) {
        auto& operation = *operations.emplace_back(std::make_unique<Operation>());
        operation.to = put.to;
        operation.bucket = bucket;
        if (fh::Firehose* firehose = initiator.try_use(put.to, bucket)) {
          post(operation, *firehose);
          continue;
        }
        const auto need = initiator.need(put.to, bucket, operation);
        act_as_initiator();
        if (need.what == fh::Initiator::Need::hit) post(operation, *need.firehose);
        // A message lands by its target's hand.
        if (need.what == fh::Initiator::Need::by_message || need.what == fh::Initiator::Need::gone)
          operation.done = true;
      }
      initiator.flush();
      if (const auto sent = initiator.next_message()) {
        send(sent->to, sent->message);
        if (put.buckets.size() == 1 && world.job_.rides) {
          initiator.rode(put.to, put.buckets[0]);
          operations.back()->done = true;  // it lands by its target's hand
        }
      }
    }
    void begin_atomic(const MadePut& put) {
      auto& operation = *operations.emplace_back(std::make_unique<Operation>());
      operation.to = put.to;
      operation.bucket = put.buckets[0];
      operation.is_atomic = true;
      if (lost[put.to] || cut[put.to]) return void(operation.done = true);
      fh::DataMessage atomic;
      atomic.kind = fh::DataMessage::Kind::atomic;
      atomic.request = static_cast<std::uint32_t>(operations.size() - 1);
      atomic.bytes = 8;
      atomic.address = kMadeBucket.range(operation.bucket).end - atomic.bytes;
      send(put.to, atomic);
    }
    void send(fh::Peer to, const fh::DataMessage& message) {
      if (lost[to] || cut[to] || !world.processes_[to]->alive) return;
      Wire wire(1 + fh::kDataHeader, kDataMark);
      fh::encode(message, wire.data() + 1);
      sent[to].push_back(std::move(wire));
    }
    bool is_changing(fh::Bucket bucket) const {
      return std::any_of(revoking.begin(), revoking.end(),
                         [&](const auto& one) { return one.second.contains(bucket); });
    }
    /// False: its memory is changing.
    bool apply(fh::Peer from, const fh::DataMessage& atomic) {
      if (is_changing(kMadeBucket.of(atomic.address))) return false;
      ++world.processes_[from]->operations[atomic.request]->applied;
      fh::DataMessage answer;
      answer.request = atomic.request;
      send(from, answer);
      return true;
    }
    void heard(fh::Peer from, const fh::DataMessage& message) {
      if (message.kind == fh::DataMessage::Kind::answer)
        return void(operations[message.request]->done = true);
      if (apply(from, message)) return;
      if (waiting.add(from, message) != 0) world.violate("an atomic finds no place to wait");
      waits_for.push_back({from, kMadeBucket.of(message.address)});
    }
    bool is_stuck() const { return world.job_.fault == Fault::waiting_in_progress && !waits_for.empty(); }
    bool can_serve() const {
      return std::any_of(waits_for.begin(), waits_for.end(),
                         [&](const auto& one) { return !is_changing(one.second); });
    }
    void serve_waiting() {
      waiting.flush([&](fh::Peer from, const fh::DataMessage& atomic) { return apply(from, atomic); });
      std::erase_if(waits_for, [&](const auto& one) { return !is_changing(one.second); });
    }
    /// Atomics from and to a peer that is gone.
    void end_atomics(fh::Peer peer) {
      waiting.drop(peer);
      std::erase_if(waits_for, [&](const auto& one) { return one.first == peer; });
      for (const auto& operation : operations)
        if (operation->is_atomic && operation->to == peer) operation->done = true;
    }
    void post(Operation& operation, fh::Firehose& firehose) {
      const bool ended = world.job_.fault == Fault::use_not_counted;
      posted.push_back({&operation, &firehose, {operation.bucket, firehose.epoch}, ended});
      if (ended) end_use(firehose);
    }
    void end_use(fh::Firehose& firehose) {
      if (!initiator.end_use(firehose)) return;
      initiator.drained(firehose);
      act_as_initiator();
    }
    void finish(unsigned k) {
      const Posted put = posted[k];
      posted.erase(posted.begin() + k);
      put.operation->done = true;
      if (!put.use_ended) end_use(*put.firehose);
    }
    void finish_device_work(unsigned k, bool fails) {
      const DeviceWork work = device_work[k];
      device_work.erase(device_work.begin() + k);
      const auto at = registered.find({work.ref.bucket, work.ref.epoch});
      if (!work.pins || fails) {
        registered.erase(at);
        if (work.pins)
          owner.pin_failed(work.ref, EFAULT);
        else if (world.job_.fault != Fault::unpins_count_at_once)
          owner.unpinned(work.ref);
        return act_as_owner();
      }
      at->second.usable = true;
      const Range range = kMadeBucket.range(work.ref.bucket);
      owner.pinned(work.ref, {{{range.begin, range.end, range.begin, work.ref.epoch}}, 1});
      act_as_owner();
    }
    void begin_revocation(const fh::BucketRange& buckets) {
      const fh::Revocation name = ++last_revocation;
      ++revocations_left;
      revoking[name] = buckets;
      if (world.job_.fault == Fault::change_without_recall) return finish_revocation(name);
      owner.revoke(name, buckets, kDeadline);
      act_as_owner();
      if (world.job_.fault == Fault::granting_while_revoking) owner.end_revocation(name);
    }
    void finish_revocation(fh::Revocation name) { revoked_now.push_back({name, revoking[name]}); }
    void change(unsigned k) {
      const Revoked done = revoked_now[k];
      revoked_now.erase(revoked_now.begin() + k);
      revoking.erase(done.name);
      --revocations_left;
      const bool checked = world.job_.fault != Fault::change_without_recall;
      for (const auto& [ref, registration] : registered)
        if (checked && done.buckets.contains(ref.first)) world.violate("registered memory changes");
      for (fh::Bucket bucket = 0; bucket < kBuckets; ++bucket)
        if (done.buckets.contains(bucket)) ++version[bucket];
      owner.end_revocation(done.name);
    }
    /// The latest revocation that waits.
    void give_up() {
      for (auto at = revoking.rbegin(); at != revoking.rend(); ++at) {
        const fh::Revocation name = at->first;
        if (std::any_of(revoked_now.begin(), revoked_now.end(),
                        [&](const Revoked& r) { return r.name == name; }))
          continue;
        revoking.erase(name);
        --revocations_left;
        owner.end_revocation(name);
        return;
      }
    }
    void die() {
      alive = false;
      for (auto& messages : sent) messages.clear();
      for (const auto& peer : world.processes_) {
        peer->sent[number].clear();
        if (peer->alive) peer->must_notice[number] = true;
      }
    }
    /// Its operations with the peer end here. Puts under way may land until the peer knows.
    void cut_off_by_itself(Process& peer) {
      cut[peer.number] = true;
      sent[peer.number].clear();
      end_atomics(peer.number);
      initiator.gone(peer.number);
      act_as_initiator();
      must_notice[peer.number] = true;
      peer.must_notice[number] = true;
    }
    /// The connection with it is closed.
    void notice(fh::Peer peer) {
      must_notice[peer] = false;
      if (lost[peer]) return;
      lost[peer] = true;
      sent[peer].clear();
      world.processes_[peer]->sent[number].clear();
      end_atomics(peer);
      std::vector<Posted> ended;
      for (const Posted& put : posted)
        if (put.operation->to == peer) ended.push_back(put);
      std::erase_if(posted, [&](const Posted& put) { return put.operation->to == peer; });
      owner.gone(peer);
      act_as_owner();
      initiator.gone(peer);
      act_as_initiator();
      for (const Posted& put : ended) {
        put.operation->done = true;
        end_use(*put.firehose);
      }
    }

    template <class Mix>
    void mix_into(Mix&& mix) const {
      mix(alive * 16u + resized * 4u + renewed);
      mix(next_put);
      mix(next_revocation);
      for (const auto& operation : operations) mix(operation->done * 4u + operation->applied);
      for (const auto& [from, bucket] : waits_for) mix(bucket * 64 + from);
      for (const Posted& put : posted) {
        mix(put.ref.bucket * 64 + put.operation->to);
        mix(put.ref.epoch);
      }
      for (const DeviceWork& work : device_work) mix((work.ref.bucket * 64 + work.ref.epoch) * 2 + work.pins);
      for (const auto& [ref, registration] : registered) {
        mix(ref.first);
        mix(ref.second * 64 + registration.version * 2 + registration.usable);
      }
      for (const auto& of : version) mix(of);
      for (const auto& [name, buckets] : revoking) mix(name);
      for (const Revoked& done : revoked_now) mix(done.name);
      for (fh::Peer peer = 0; peer < sent.size(); ++peer) {
        mix(must_notice[peer] * 4u + lost[peer] * 2u + cut[peer]);
        mix(sent[peer].size());
        for (const Wire& wire : sent[peer])
          mix(std::hash<std::string_view>()({reinterpret_cast<const char*>(wire.data()), wire.size()}));
        mix(initiator.limit(peer));
        initiator.for_each(peer, [&](const fh::Firehose& firehose) {
          mix(firehose.bucket.load());
          mix(firehose.epoch * 2 + (firehose.used.load() > 0));
          const auto word = firehose.word.load();
          mix(word.uses() * 4u + static_cast<unsigned>(word.state()));
        });
      }
      owner.visit(mix);
    }

    static constexpr fh::Bucket kBuckets = 8;

    FirehoseWorld& world;
    const fh::Peer number;
    fh::Initiator initiator;
    fh::Owner owner;
    bool alive = true;
    unsigned resized = 0, renewed = 0;
    unsigned next_put = 0, next_revocation = 0, revocations_left = 0;
    fh::Revocation last_revocation = 0;
    std::vector<std::unique_ptr<Operation>> operations;
    std::vector<Posted> posted;  ///< on the way
    std::map<std::pair<fh::Bucket, fh::Epoch>, Registration> registered;
    std::vector<DeviceWork> device_work;
    std::map<fh::Revocation, fh::BucketRange> revoking;
    std::vector<Revoked> revoked_now;
    std::array<std::uint64_t, kBuckets> version{};
    std::vector<std::deque<Wire>> sent;  ///< to each
    fh::WaitingAtomics waiting;
    std::vector<std::pair<fh::Peer, fh::Bucket>> waits_for;  ///< by the peer, of `waiting`
    std::vector<char> must_notice, lost, cut;
  };

  template <class Of>
  static std::size_t count(const std::vector<std::vector<Of>>& of, unsigned i) {
    return i < of.size() ? of[i].size() : 0;
  }

  void violate(const char* what) {
    if (violation_.empty()) violation_ = what;
  }

  void deliver(Process& from, Process& to, std::size_t at) {
    const Wire wire = from.sent[to.number][at];
    from.sent[to.number].erase(from.sent[to.number].begin() + static_cast<std::ptrdiff_t>(at));
    const fh::Peer peer = from.number;
    if (wire[0] == kDataMark) {
      const auto message = fh::decode_data(wire.data() + 1, wire.size() - 1, 0);
      if (!message) return violate("a message cannot be read");
      if (!to.lost[peer] && !to.cut[peer]) to.heard(peer, *message);
      return;
    }
    const auto decoded = fh::decode(wire.data(), wire.size(), kMadeBucket);
    if (!decoded || decoded->bytes != wire.size()) return violate("a message cannot be read");
    if (to.lost[peer] || to.cut[peer]) return;
    to.look_at_clock();
    if (const auto* move = std::get_if<fh::Move>(&decoded->message)) to.owner.move(peer, *move);
    if (const auto* release = std::get_if<fh::Release>(&decoded->message)) to.owner.release(peer, *release);
    if (const auto* answer = std::get_if<fh::Answer>(&decoded->message)) to.initiator.answer(peer, *answer);
    if (const auto* limit = std::get_if<fh::Limit>(&decoded->message)) to.initiator.limit(peer, *limit);
    const auto* const recall = std::get_if<fh::Recall>(&decoded->message);
    if (recall) to.initiator.recall(peer, *recall);
    to.act_as_owner();
    to.act_as_initiator();
    if (recall) {
      if (job_.fault == Fault::release_too_early) {
        fh::Release early;
        for (const Posted& put : to.posted)
          if (put.operation->to == peer && !early.firehoses.full()) early.firehoses.add(put.ref);
        if (early.firehoses.count) to.send(peer, early);
      }
    }
  }

  void land(Process& from, unsigned k) {
    const Posted put = from.posted[k];
    Process& to = *processes_[put.operation->to];
    if (to.alive && !to.lost[from.number]) {  // else the network drops it
      const auto at = to.registered.find({put.ref.bucket, put.ref.epoch});
      if (at == to.registered.end() || !at->second.usable)
        violate("a put lands in memory that is not registered");
      else if (at->second.version != to.version[put.ref.bucket])
        violate("a put lands in other memory");
    }
    from.finish(k);
  }

  void check(const Process& p) {
    if (!p.alive) return;
    if (!p.resized && p.registered.size() > p.owner.quota().most())
      violate("more than M + MAXVICTIM is registered");
    if (job_.fault != Fault::unpins_count_at_once &&
        p.registered.size() != p.owner.registrations().registered())
      violate("registered memory is miscounted");
    if (p.owner.quota().sharing == fh::Sharing::static_share && !p.resized)
      for (fh::Peer peer = 0; peer < processes_.size(); ++peer)
        if (p.owner.firehoses(peer) > p.owner.quota().static_firehoses()) violate("a peer holds more than F");
  }

  MadeJob job_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::string violation_;
};

struct Explored {
  std::uint64_t states = 0;
  std::uint64_t ends = 0;  ///< runs to an end
  std::string violation;
};

/// Tries every order of the steps, up to `most` states; stops at the first violation.
inline Explored explore(const MadeJob& job, std::uint64_t most) {
  Explored explored;
  std::unordered_set<std::uint64_t> seen;
  std::vector<std::vector<unsigned>> open{{}};
  while (!open.empty() && explored.violation.empty() && explored.states < most) {
    std::vector<unsigned> path = std::move(open.back());
    open.pop_back();
    FirehoseWorld world(job);
    for (const unsigned chosen : path) world.take(world.steps()[chosen]);
    while (world.violation().empty() && seen.insert(world.fingerprint()).second) {
      ++explored.states;
      const auto steps = world.steps();
      if (steps.empty()) {
        ++explored.ends;
        world.check_end();
        if (world.violation().empty()) world.revoke_all();
        break;
      }
      for (unsigned other = 1; other < steps.size(); ++other) {
        open.push_back(path);
        open.back().push_back(other);
      }
      path.push_back(0);
      world.take(steps[0]);
    }
    explored.violation = world.violation();
  }
  return explored;
}

}  // namespace pinion::test
