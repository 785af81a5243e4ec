#include "firehose/caching.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "firehose/bucket_choice.h"
#include "firehose/calls.h"
#include "firehose/courier.h"
#include "firehose/outbox.h"
#include "firehose/peer_service.h"
#include "firehose/remote_access.h"

namespace pinion::firehose {

namespace {

/// A rendezvous has no bound: more buckets than memory has.
constexpr std::uint64_t kUnbounded = std::uint64_t{1} << 30;

bool is(const char* option, const char* name) { return option && std::strcmp(option, name) == 0; }

Quota quota_of(const pinion_firehose_options& options, std::size_t bucket, Peer processes, Keeps keeps) {
  if (keeps != Keeps::firehoses)
    return {Sharing::static_share, kUnbounded, keeps == Keeps::registrations ? kUnbounded : 0, processes};
  const std::uint64_t memory = memory_for_peers(options);
  Quota quota;
  if (is(options.sharing, "static")) quota.sharing = Sharing::static_share;
  quota.buckets = memory / bucket;
  quota.victims = options.victims ? options.victims / bucket : quota.buckets / 16;
  quota.processes = processes;
  return quota;
}

/// One hit in so many is timed.
bool is_sampled() {
  constexpr unsigned kOneIn = 64;
  thread_local unsigned t_hits = 0;
  return ++t_hits % kOneIn == 0;
}

}  // namespace

Caching::Caching(Ways& ways, Keeps keeps)
    : Caching(ways, keeps, quota_of(ways.options, ways.options.bucket, ways.endpoint->peers(), keeps)) {}

Caching::Caching(Ways& ways, Keeps keeps, const Quota& quota)
    : ways_(ways),
      keeps_(keeps),
      size_(ways.options.bucket),
      rides_(keeps == Keeps::firehoses && !is(ways.options.rides, "off")),
      most_light_(ways.endpoint->capabilities().max_message - kMostMessage),
      initiator_(ways.endpoint->peers(), quota.first_limit(), quota.end_of_walks(size_.end())),
      owning_(ways, size_, quota),
      times_(ways.endpoint->peers()) {}

// ---- events and their actions

/// Runs an event under the lock, sends its messages, and then goes on with the parts that it has answered.
template <class Event>
void Caching::run(Event&& event) {
  Parts answered;
  {
    const MutexLock lock(mutex_);
    initiator_.at(monotonic_now());
    event();
    send_messages();
    while (Waiter* const waiter = initiator_.next_answered()) answered.push_back(static_cast<Part&>(*waiter));
  }
  while (Part* const part = answered.pop_front()) {
    if (part->firehose) {
      use(*part, *part->firehose);
      continue;
    }
    refusals_.fetch_add(1, std::memory_order_relaxed);
    part->error == ECONNRESET ? ways_.calls->finish(*part, part->error) : by_message(*part);
  }
}

void Caching::send(const Initiator::Sent& sent) {
  char wire[kMostMessage];
  const std::size_t bytes = encode(sent.message, wire);
  // An error is the peer's end, which the endpoint reports.
  static_cast<void>(ways_.outbox->send(sent.to, kControlMessage, wire, bytes));
}

void Caching::send_messages() {
  while (const auto sent = initiator_.next_message()) send(*sent);
}

/// Sends the question that need() has gathered; `rider`: the only part that it is about, or null.
void Caching::send_question(Part* rider) {
  if (!initiator_.flush() || !rider) return;
  const auto sent = initiator_.next_message();
  if (ride(*rider, sent->message))
    initiator_.rode(sent->to, std::get<Move>(sent->message).wanted.items[0]);
  else
    send(*sent);
}

/// Sends the part with the question for its bucket. It may be over before this returns. False: it cannot
/// ride.
bool Caching::ride(Part& part, const Message& move) {
  part.begun = times_.begin(part.peer, ticks_now());
  char wire[kMostMessage];
  part.rides = true;
  if (ways_.courier->ride(part, wire, encode(move, wire))) return true;
  part.rides = false;
  part.begun = 0;
  return false;
}

// ---- parts

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
  ways_.access->by_provider(part);
  return true;
}

/// One message wants the buckets of all parts. A part that waits may be over before this returns.
void Caching::ask(std::span<Part* const> parts) {
  std::array<Initiator::Needed, kMostTogether> needed;
  for (Part* const part : parts) {
    // Remote memory comes before local: no part that waits for a peer holds what others need.
    PINION_ASSERT(!part->leased);
    part->call->went(Way::asked_for);
    part->light = part->bytes <= most_light_;
  }
  run([&]() REQUIRES(mutex_) {
    if (const Duration message = times_.by_message.get())
      initiator_.operations_take(times_.held.get(), message, times_.riding.sure());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      needed[i] = initiator_.need(parts[i]->peer, size_.of(parts[i]->remote), *parts[i]);
      send_messages();
    }
    send_question(rides_ && parts.size() == 1 ? parts[0] : nullptr);
  });
  for (std::size_t i = 0; i < parts.size(); ++i) go_on(*parts[i], needed[i]);
}

/// The part is touched only if it does not wait.
void Caching::go_on(Part& part, const Initiator::Needed& needed) {
  switch (needed.what) {
    case Need::hit:
      if (use(part, *needed.firehose)) hits_.fetch_add(1, std::memory_order_relaxed);
      return;
    case Need::asks:
      misses_.fetch_add(1, std::memory_order_relaxed);
      return;
    case Need::waits:
      waited_.fetch_add(1, std::memory_order_relaxed);
      return;
    case Need::by_message:
      return by_message(part);
    case Need::gone:
      return ways_.calls->finish(part, ECONNRESET);
  }
}

void Caching::by_message(Part& part) {
  part.begun = times_.begin(part.peer, ticks_now());
  ways_.courier->by_message(part);
}

/// The part has a use of the firehose from here on. False: its memory is not registered there.
bool Caching::locate(Part& part, Firehose& firehose) {
  part.firehose = &firehose;
  const RemotePart* const remote = part_of(firehose.parts, {part.remote, part.remote + part.bytes});
  if (!remote) return false;
  part.target = {remote->address + (part.remote - remote->begin), remote->key};
  return true;
}

/// The part's bucket is registered without the part's memory.
void Caching::outside(Part& part) {
  part.sampled = false;
  ended(part);
  by_message(part);
}

/// True: the part goes by the firehose.
bool Caching::use(Part& part, Firehose& firehose) {
  if (!locate(part, firehose)) {
    outside(part);
    return false;
  }
  ways_.access->by_provider(part);
  return true;
}

void Caching::ended(Part& part) {
  Firehose* const firehose = std::exchange(part.firehose, nullptr);
  if (!firehose) return;
  const Ticks begin = part.sampled ? ticks_now() : 0;
  if (part.begun) times_.held.add(calibration().to_duration(begin - part.begun));
  part.begun = 0;
  if (initiator_.end_use(*firehose)) return run([&]() REQUIRES(mutex_) { initiator_.drained(*firehose); });
  if (part.sampled) bookkeeping_ticks_.fetch_add(ticks_now() - begin, std::memory_order_relaxed);
  if (keeps_ == Keeps::firehoses) return;
  run([&]() REQUIRES(mutex_) { initiator_.recall(part.peer, {{size_.of(part.remote), 1}, ~Epoch{0}}); });
}

void Caching::answered(Part& part) {
  times_.met(part.peer);
  TypicalTime& time = part.rides ? times_.riding : times_.by_message;
  if (part.begun) time.add(calibration().to_duration(ticks_now() - part.begun));
  if (part.rides) run([&]() REQUIRES(mutex_) { initiator_.rider_ended(part.peer, size_.of(part.remote)); });
}

// ---- messages

void Caching::message(Peer from, const void* payload, std::size_t bytes) {
  const auto decoded = decode(payload, bytes, size_);
  if (!decoded) return;
  times_.met(from);
  const Message& message = decoded->message;
  if (const auto* move = std::get_if<Move>(&message)) {
    owning_.moved(from, *move);
    if (decoded->bytes < bytes)
      ways_.service->serve(from, static_cast<const char*>(payload) + decoded->bytes, bytes - decoded->bytes);
  } else if (const auto* release = std::get_if<Release>(&message)) {
    owning_.released(from, *release);
  } else if (const auto* answer = std::get_if<Answer>(&message)) {
    moves_.fetch_add(answer->grants.count, std::memory_order_relaxed);
    run([&]() REQUIRES(mutex_) {
      for (const Grant& grant : answer->grants) distinct_.add(grant.ref.bucket << 24 ^ from);
      initiator_.answer(from, *answer);
    });
  } else if (const auto* recall = std::get_if<Recall>(&message)) {
    run([&]() REQUIRES(mutex_) { initiator_.recall(from, *recall); });
  } else if (const auto* limit = std::get_if<Limit>(&message)) {
    run([&]() REQUIRES(mutex_) { initiator_.limit(from, *limit); });
  }
}

void Caching::disconnected(Peer peer) {
  run([&]() REQUIRES(mutex_) { initiator_.gone(peer); });
}

void Caching::gone(Peer peer) {
  disconnected(peer);
  owning_.gone(peer);
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
    const MutexLock lock(mutex_);
    out.buckets = initiator_.size();
    out.distinct_buckets = distinct_.count();
  }
  owning_.add_to(out);
}

}  // namespace pinion::firehose
