#include "firehose/job.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <string>

#include "firehose/bucket_choice.h"
#include "firehose/courier.h"
#include "firehose/data_message.h"
#include "firehose/inside.h"
#include "firehose/peer_service.h"
#include "firehose/remote_access.h"
#include "firehose/strategy.h"
#include "monitor/own_threads.h"

namespace pinion::firehose {

namespace {

/// Messages to one peer that may wait before a call of the program does.
constexpr std::size_t kMostKept = 64;
/// Delay before the agent tries kept messages again, after the endpoint's queue was full.
constexpr Duration kAgain = 200 * kMicrosecond;

struct UserHeader {
  std::uint32_t handler;
  std::uint32_t zero;
};

}  // namespace

Ways::Ways(const pinion_firehose_options& of) : options(of), exposure(of) {}
Ways::~Ways() = default;

// ---- opening and closing

std::atomic<unsigned> Job::forks_so_far{0};

unsigned Job::watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { ::pthread_atfork(nullptr, nullptr, [] { ++forks_so_far; }); });
  return forks_so_far.load();
}

Job::Job(const pinion_firehose_options& options) : forks_(watch_forks()), ways_(options) {
  slots_.reserve(kMessageKinds);
  for (unsigned kind = 0; kind < kMessageKinds; ++kind)
    slots_.emplace_back(*this, static_cast<MessageKind>(kind));
}

/// Closes a job that could not join, or whose endpoint would not close: peers' messages may still come.
Job::~Job() {
  if (closed_ || !ways_.endpoint) return;
  if (ways_.strategy) ways_.strategy->close();
  static_cast<void>(ways_.endpoint->close());
}

Job::Result Job::open(const pinion_firehose_options& options) {
  std::unique_ptr<Job> job(new Job(options));
  if (Error error = job->join()) return {error, nullptr};
  return {{}, std::move(job)};
}

Error Job::find_membership(transfer::Membership& membership) const {
  const pinion_firehose_options& options = ways_.options;
  if (options.processes > 0) {
    membership = {options.process, options.processes, options.directory};
    return {};
  }
  if (Error error = transfer::membership_of_launcher(membership)) return error;
  if (options.directory) {
    membership.directory = options.directory;
    membership.names = 1;  // no other will do
  }
  return {};
}

Error Job::open_endpoint(const transfer::Membership& membership) {
  transfer::FabricEndpointOptions wish;
  wish.job = membership;
  wish.provider = ways_.options.provider ? ways_.options.provider : "";
  transfer::FabricEndpointResult made = transfer::open_fabric_endpoint(wish);
  ways_.endpoint = std::move(made.endpoint);
  return made.error;
}

Error Job::agree_on_buckets() {
  std::vector<std::uint64_t> proposals;
  if (Error error = ways_.endpoint->meet(proposed_bucket(ways_.options, peers()), proposals)) return error;
  return agreed_bucket(proposals, ways_.options.bucket);
}

void Job::make_parts(const std::string& strategy) {
  transfer::Endpoint& endpoint = *ways_.endpoint;
  const std::size_t most = endpoint.capabilities().max_message;
  ways_.cut_off = std::make_unique<std::atomic<bool>[]>(peers());
  ways_.outbox = std::make_unique<Outbox>(endpoint, peers(), &ways_.bell);
  ways_.calls = std::make_unique<Calls>(ways_);
  ways_.courier = std::make_unique<Courier>(*ways_.outbox, *ways_.calls, peers(), most - kDataHeader);
  ways_.access = std::make_unique<RemoteAccess>(ways_);
  ways_.service = std::make_unique<PeerService>(ways_);
  gathering_ = std::make_unique<Gathering>(*ways_.outbox, self(), peers(), most);
  ways_.strategy = make_strategy(strategy, ways_);
  ways_.calls->cut_at(ways_.strategy->bucket_bytes());
}

Error Job::join() {
  transfer::Membership membership;
  if (Error error = find_membership(membership)) return error;
  pinion_firehose_options& options = ways_.options;
  const std::string strategy = options.strategy ? options.strategy : kDefaultStrategy;
  if (Error error = check_strategy(strategy)) return error;
  if (Error error = open_endpoint(membership)) return error;
  if (Error error = agree_on_buckets()) return error;
  make_parts(strategy);
  for (unsigned kind = 0; kind < kMessageKinds; ++kind) ways_.endpoint->handle(kind, slots_[kind]);
  if (Error error = ways_.endpoint->connect()) return error;
  if (Error error = ways_.strategy->open()) return error;
  options.provider = options.directory = options.strategy = nullptr;  // the caller's
  options.sharing = options.rides = nullptr;
  options.segments = nullptr;
  start_threads();
  return {};
}

Error Job::close() {
  until([this] { return calls().all_done(); });
  gather(nullptr, 0, nullptr);
  const Time end = monotonic_now() + kSecond;
  until([&] { return ways_.outbox->flush() || monotonic_now() > end; });
  stop_threads();
  ways_.strategy->close();
  const Error error = ways_.endpoint->close();
  closed_ = !error;
  return error;
}

void Job::start_threads() {
  agent_ = start_own_thread("pinion-firehose", [this] { run_agent(); });
  if (ways_.endpoint->capabilities().automatic_progress)
    progress_ = start_own_thread("pinion-progress", [this] { run_progress(); });
}

void Job::stop_threads() {
  stop_.store(true);
  ways_.bell.ring();
  if (agent_.joinable()) agent_.join();
  if (progress_.joinable()) progress_.join();
}

// ---- messages

/// Ends the connection with the peer. Its registrations stay until it is gone: until then it may still write.
void Job::cut_off(Peer peer) {
  ways_.cut_off[peer].store(true, std::memory_order_relaxed);
  ways_.endpoint->disconnect(peer);
  gathering_->gone(peer);
  ways_.courier->end(peer, ECONNRESET);
  ways_.strategy->disconnected(peer);
}

void Job::Slot::message(Peer from, const void* payload, std::size_t bytes) {
  const Inside inside;
  switch (kind_) {
    case kUserMessage:
      return job_.user_message(from, payload, bytes);
    case kDataMessage:
      return job_.ways_.service->serve(from, payload, bytes);
    case kControlMessage:
      return job_.strategy_message(from, payload, bytes);
    case kGatheringMessage:
      return job_.gathering_->arrived(from, payload, bytes);
    default:
      return;
  }
}

void Job::Slot::gone(Peer peer) {
  if (kind_ == kUserMessage) job_.lose(peer);
}

/// A protocol cannot go on without its message.
void Job::strategy_message(Peer from, const void* payload, std::size_t bytes) try {
  ways_.strategy->message(from, payload, bytes);
} catch (const std::bad_alloc&) {
  ways_.outbox->lose(from);
}

void Job::user_message(Peer from, const void* payload, std::size_t bytes) {
  const pinion_firehose_options& options = ways_.options;
  UserHeader header;
  if (bytes < sizeof header) return;
  std::memcpy(&header, payload, sizeof header);
  if (header.handler >= PINION_FIREHOSE_HANDLERS || options.handlers[header.handler] == nullptr) return;
  options.handlers[header.handler](options.handler_context, handle(), from,
                                   static_cast<const char*>(payload) + sizeof header, bytes - sizeof header);
}

void Job::lose(Peer peer) {
  const Inside inside;
  ways_.outbox->drop(peer);
  ways_.service->gone(peer);
  gathering_->gone(peer);
  ways_.strategy->gone(peer);
  ways_.courier->end(peer, ECONNRESET);
}

std::size_t Job::max_message() const {
  return ways_.endpoint->capabilities().max_message - sizeof(UserHeader);
}

Error Job::send(Peer to, unsigned handler, const void* payload, std::size_t bytes) {
  if (!Inside::is()) until([&] { return ways_.outbox->kept(to) < kMostKept; });
  messages_.fetch_add(1, std::memory_order_relaxed);
  const UserHeader header{handler, 0};
  return ways_.outbox->send(to, kUserMessage, &header, sizeof header, payload, bytes);
}

bool Job::gather(const void* own, std::size_t bytes, char* all) {
  gathering_->begin(own, bytes);
  until([this] { return gathering_->is_complete(); });
  return gathering_->end(bytes, all);
}

// ---- progress

bool Job::in_handler() { return Inside::is(); }

unsigned Job::progress() {
  const unsigned events = ways_.endpoint->progress();
  if (Inside::is()) return events;
  ways_.outbox->flush();
  ways_.courier->flush();
  ways_.access->flush();
  ways_.service->flush();
  return events;
}

/// Returns the time by which it has to be called again.
Time Job::work() try {
  Time next = ways_.strategy->work();
  for (Peer peer = 0; ways_.outbox->take_lost(peer);) cut_off(peer);
  // All of them, each time.
  bool nothing_waits = ways_.outbox->flush();
  nothing_waits &= ways_.courier->flush();
  nothing_waits &= ways_.access->flush();
  nothing_waits &= ways_.service->flush();
  if (!nothing_waits) next = std::min(next, monotonic_now() + kAgain);
  return next;
} catch (const std::bad_alloc&) {
  return monotonic_now() + kAgain;
}

void Job::run_agent() {
  while (!stop_.load()) {
    const std::uint32_t seen = ways_.bell.rings();
    ways_.bell.wait(seen, work());
  }
}

void Job::run_progress() {
  while (!stop_.load())
    if (ways_.endpoint->progress() == 0) ways_.endpoint->wait(kLook);
}

void Job::statistics(struct pinion_firehose_statistics& out) const {
  ways_.calls->add_to(out);
  out.messages = messages_.load(std::memory_order_relaxed);
  out.messaged = ways_.courier->parts() + out.packed;
  out.riders = ways_.courier->riders();
  ways_.strategy->add_to(out);
}

}  // namespace pinion::firehose
