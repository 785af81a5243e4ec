#include "firehose/job.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/futex.h"
#include "base/held_signals.h"
#include "firehose/bucket_choice.h"
#include "firehose/own_memory.h"
#include "transfer/endpoint/wire_pool.h"

namespace pinion::firehose {

namespace {

/// Messages to one peer that may wait before a call of the program does.
constexpr std::size_t kMostKept = 64;
/// Until the agent tries kept messages again, after the endpoint's queue was full.
constexpr Duration kAgain = 200 * kMicrosecond;

struct UserHeader {
  std::uint32_t handler;
  std::uint32_t zero;
};

/// Depth of handlers and completions on this thread.
thread_local unsigned t_inside = 0;

class Inside {
 public:
  Inside() { ++t_inside; }
  ~Inside() { --t_inside; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

std::uint64_t next_job() {
  static std::atomic<std::uint64_t> next{0};
  return ++next;
}

}  // namespace

// ---- opening and closing

std::atomic<unsigned> Job::forks_so_far{0};

unsigned Job::watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { ::pthread_atfork(nullptr, nullptr, [] { ++forks_so_far; }); });
  return forks_so_far.load();
}

Job::Job(const pinion_firehose_options& options)
    : options_(options), forks_(watch_forks()), number_(next_job()) {
  slots_.reserve(kMessageKinds);
  for (unsigned kind = 0; kind < kMessageKinds; ++kind)
    slots_.emplace_back(*this, static_cast<MessageKind>(kind));
  for (std::size_t i = 0; i < options.segment_count; ++i)
    segments_.push_back(Range::of(options.segments[i].address, options.segments[i].bytes));
}

/// Of one that could not join, or whose endpoint would not close: peers' messages may still come.
Job::~Job() {
  if (closed_ || !endpoint_) return;
  if (strategy_) strategy_->close();
  static_cast<void>(endpoint_->close());
}

Job::Result Job::open(const pinion_firehose_options& options) {
  std::unique_ptr<Job> job(new Job(options));
  if (Error error = job->join()) return {error, nullptr};
  return {{}, std::move(job)};
}

Error Job::open_endpoint(const transfer::Membership& place) {
  transfer::FabricEndpointOptions wish;
  wish.job = place;
  wish.provider = options_.provider ? options_.provider : "";
  transfer::FabricEndpointResult made = transfer::open_fabric_endpoint(wish);
  endpoint_ = std::move(made.endpoint);
  return made.error;
}

Error Job::agree_on_buckets() {
  std::vector<std::uint64_t> proposals;
  if (Error error = endpoint_->meet(proposed_bucket(options_, peers()), proposals)) return error;
  return agreed_bucket(proposals, options_.bucket);
}

Error Job::join() {
  transfer::Membership place;
  if (options_.processes > 0)
    place = {options_.process, options_.processes, options_.directory};
  else if (Error error = transfer::membership_of_launcher(place))
    return error;
  else if (options_.directory)
    place.directory = options_.directory;
  const std::string strategy = options_.strategy ? options_.strategy : kDefaultStrategy;
  if (Error error = check_strategy(strategy)) return error;
  if (Error error = open_endpoint(place)) return error;
  if (Error error = agree_on_buckets()) return error;
  outbox_ = std::make_unique<Outbox>(*endpoint_, place.peers);
  courier_ = std::make_unique<Courier>(*outbox_, place.peers,
                                       endpoint_->capabilities().max_message - kDataHeader, &Job::answered);
  cut_off_ = std::make_unique<std::atomic<bool>[]>(place.peers);
  gathering_ =
      std::make_unique<Gathering>(*outbox_, place.rank, place.peers, endpoint_->capabilities().max_message);
  strategy_ = make_strategy(strategy, *this);
  bucket_ = strategy_->bucket_bytes();
  for (unsigned kind = 0; kind < kMessageKinds; ++kind) endpoint_->handle(kind, slots_[kind]);
  if (Error error = endpoint_->connect()) return error;
  if (Error error = strategy_->open()) return error;
  options_.provider = options_.directory = options_.strategy = nullptr;  // the caller's
  options_.segments = nullptr;
  const HeldSignals held;  // for the threads
  agent_ = std::thread([this] { run_agent(); });
  if (endpoint_->capabilities().automatic_progress) progress_ = std::thread([this] { run_progress(); });
  return {};
}

Error Job::close() {
  until([this] { return all_done(); });
  gather(nullptr, 0, nullptr);
  const Time end = monotonic_now() + kSecond;
  until([&] { return outbox_->flush() || monotonic_now() > end; });
  stop_threads();
  strategy_->close();
  const Error error = endpoint_->close();
  closed_ = !error;
  return error;
}

void Job::stop_threads() {
  stop_.store(true);
  ring();
  if (agent_.joinable()) agent_.join();
  if (progress_.joinable()) progress_.join();
}

// ---- calls

void Job::count(Call& call) {
  live_.fetch_add(1, std::memory_order_relaxed);
  if (call.implicit) call.implicit->left.fetch_add(1, std::memory_order_relaxed);
}

void Job::launched(Call& call) { part_over(call); }

void Job::put_took(const Call& call, Duration time) {
  const Way way = call.way.load(std::memory_order_relaxed);
  if (call.peer == self() || way == Way::message) return;
  Latency& latency = way == Way::held ? hit_latency_ : miss_latency_;
  latency.ns.fetch_add(static_cast<std::uint64_t>(time), std::memory_order_relaxed);
  latency.puts.fetch_add(1, std::memory_order_relaxed);
}

const std::shared_ptr<ImplicitCalls>& Job::implicit() {
  struct OfJob {
    std::uint64_t job;
    std::shared_ptr<ImplicitCalls> calls;
  };
  thread_local std::vector<OfJob> t_calls;
  for (const OfJob& each : t_calls)
    if (each.job == number_) return each.calls;
  return t_calls.emplace_back(OfJob{number_, std::make_shared<ImplicitCalls>()}).calls;
}

/// Parts that the strategy gets together.
struct Job::Batch {
  std::array<Part*, Strategy::kMostTogether> parts;
  std::size_t count = 0;
};

void Job::access_own(Call& call, PartKind kind, const pinion_firehose_piece& piece) {
  const int error = kind == PartKind::put ? own_memory::write(piece.remote, piece.local, piece.bytes)
                                          : own_memory::read(piece.local, piece.remote, piece.bytes);
  if (error) call.fail(error);
}

/// Null: out of memory, and the call fails.
Part* Job::make_part(Call& call, PartKind kind) {
  auto* const part = new (std::nothrow) Part(*this, call);
  if (part == nullptr) {
    call.fail(ENOMEM);
    return nullptr;
  }
  part->kind = kind;
  call.left.fetch_add(1, std::memory_order_relaxed);
  return part;
}

/// False: out of memory.
bool Job::add(Batch& batch, Call& call, PartKind kind, const pinion_firehose_piece& piece) {
  const std::size_t most = endpoint_->capabilities().max_transfer;
  for (std::size_t at = 0; at < piece.bytes;) {
    const std::uint64_t remote = piece.remote + at;
    std::size_t bytes = std::min(piece.bytes - at, most);
    if (bucket_ > 0) bytes = std::min<std::size_t>(bytes, bucket_ - remote % bucket_);
    Part* const part = make_part(call, kind);
    if (part == nullptr) return false;
    part->remote = remote;
    part->local = static_cast<char*>(piece.local) + at;
    part->bytes = bytes;
    batch.parts[batch.count++] = part;
    at += bytes;
    if (batch.count < batch.parts.size()) continue;
    strategy_->begin(batch.parts);
    batch.count = 0;
  }
  return true;
}

/// Small pieces, where that is faster.
bool Job::travels_together(Call& call, std::span<const pinion_firehose_piece> pieces) {
  if (pieces.size() < 2 || call.peer == self() || cut_off_[call.peer].load(std::memory_order_relaxed))
    return false;
  for (const pinion_firehose_piece& piece : pieces)
    if (piece.bytes == 0 || piece.bytes > Packing::kMostBytes) return false;
  call.measured = pieces.size();
  call.together = packing_.together(pieces.size());
  call.begun = monotonic_now();
  return call.together;
}

/// The message of so many pieces. Null: out of memory.
std::unique_ptr<Scattered> make_scattered(std::span<const pinion_firehose_piece> pieces, std::size_t request,
                                          bool puts) {
  try {
    auto made = std::make_unique<Scattered>();
    made->request.resize(request);
    if (!puts) made->targets.assign(pieces.begin(), pieces.end());
    return made;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

/// The first of the pieces, as many as one message holds; returns how many. 0: out of memory.
std::size_t Job::add_together(Call& call, PartKind kind, std::span<const pinion_firehose_piece> pieces) {
  const std::size_t most = endpoint_->capabilities().max_message - kDataHeader;
  const bool puts = kind == PartKind::put;
  std::size_t count = 0, list = 0, data = 0;
  for (; count < pieces.size(); ++count) {
    const std::size_t with = data + pieces[count].bytes;
    if (list + sizeof(DataPiece) + (puts ? with : 0) > most || with > most) break;
    list += sizeof(DataPiece);
    data = with;
  }
  pieces = pieces.first(count);
  auto made = make_scattered(pieces, list + (puts ? data : 0), puts);
  if (!made) return 0;
  Part* const part = make_part(call, puts ? PartKind::scattered_put : PartKind::scattered_get);
  if (part == nullptr) return 0;
  part->operand = count;
  part->scattered = std::move(made);
  Scattered& scattered = *part->scattered;
  char* at = scattered.request.data();
  for (const pinion_firehose_piece& piece : pieces) {
    const DataPiece wire{piece.remote, piece.bytes};
    std::memcpy(at, &wire, sizeof wire);
    at += sizeof wire;
  }
  for (std::size_t i = 0; puts && i < count; at += pieces[i++].bytes)
    std::memcpy(at, pieces[i].local, pieces[i].bytes);
  scattered.answer = puts ? 0 : data;
  part->local = scattered.request.data();
  part->bytes = scattered.request.size();
  courier_->carry(*part);
  return count;
}

void Job::count(PartKind kind, std::size_t pieces) {
  (kind == PartKind::put ? puts_ : gets_).fetch_add(pieces, std::memory_order_relaxed);
}

void Job::start_together(Call& call, PartKind kind, std::span<const pinion_firehose_piece> pieces) {
  call.went(Way::message);
  while (!pieces.empty()) {
    const std::size_t added = add_together(call, kind, pieces);
    if (added == 0) return start_apart(call, kind, pieces);
    count(kind, added);
    messaged_.fetch_add(added, std::memory_order_relaxed);
    packed_.fetch_add(added, std::memory_order_relaxed);
    pieces = pieces.subspan(added);
  }
}

void Job::start_apart(Call& call, PartKind kind, std::span<const pinion_firehose_piece> pieces) {
  Batch batch;
  for (const pinion_firehose_piece& piece : pieces) {
    if (piece.bytes == 0) continue;
    count(kind, 1);
    if (call.peer == self())
      access_own(call, kind, piece);
    else if (cut_off_[call.peer].load(std::memory_order_relaxed))
      call.fail(ECONNRESET);
    else if (!add(batch, call, kind, piece))
      break;
  }
  if (batch.count > 0) strategy_->begin({batch.parts.data(), batch.count});
}

void Job::start(Call& call, PartKind kind, std::span<const pinion_firehose_piece> pieces) {
  travels_together(call, pieces) ? start_together(call, kind, pieces) : start_apart(call, kind, pieces);
}

void Job::start_atomic(Call& call, std::uint64_t remote, std::size_t bytes, unsigned operation,
                       std::uint64_t operand, std::uint64_t compare, std::uint64_t* old) {
  atomics_.fetch_add(1, std::memory_order_relaxed);
  if (call.peer == self()) {
    if (const int error = own_memory::apply(remote, bytes, operation, operand, compare, *old))
      call.fail(error);
    return;
  }
  Part* const part = make_part(call, PartKind::atomic);
  if (part == nullptr) return;
  part->remote = remote;
  part->local = reinterpret_cast<char*>(old);
  part->bytes = bytes;
  part->operation = static_cast<std::uint8_t>(operation);
  part->operand = operand;
  part->compare = compare;
  courier_->carry(*part);
}

void Job::part_over(Call& call) {
  ImplicitCalls* const implicit = call.implicit.get();
  // The last one; two at once both see 2, and leave the call out.
  if (call.measured && call.left.load(std::memory_order_acquire) == 1 && !call.error.load())
    packing_.took(call.measured, call.together, monotonic_now() - call.begun);
  if (call.left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    // A call without `implicit` is its waiting owner's now.
    if (implicit != nullptr) {
      const std::shared_ptr<ImplicitCalls> kept = std::move(call.implicit);
      int none = 0;
      if (const int error = call.error.load(std::memory_order_relaxed))
        kept->error.compare_exchange_strong(none, error);
      delete &call;
      kept->left.fetch_sub(1, std::memory_order_release);
    }
    live_.fetch_sub(1, std::memory_order_release);
  }
}

/// It went by message.
void Job::answered(Part& part, int error) {
  if (!error && part.call->error.load(std::memory_order_relaxed) == 0) part.job.strategy_->answered(part);
  finish(part, error);
}

void Job::finish(Part& part, int error) {
  Call& call = *part.call;
  Job& job = part.job;
  if (error) call.fail(error);
  delete &part;
  job.part_over(call);
}

// ---- ways

void Job::by_message(Part& part) {
  messaged_.fetch_add(1, std::memory_order_relaxed);
  part.call->went(Way::message);
  courier_->carry(part);
}

bool Job::ride(Part& part, const void* message, std::size_t bytes) {
  if (!courier_->ride(part, message, bytes)) return false;
  riders_.fetch_add(1, std::memory_order_relaxed);
  if (!outbox_->empty()) ring();
  return true;
}

void Job::fail(Part& part, int error) { finish(part, error); }

void Job::by_provider(Part& part) {
  if (post(part)) return;
  {
    const std::lock_guard lock(waiting_mutex_);
    waiting_.push_back(part);
    has_waiting_.store(true, std::memory_order_release);
  }
  ring();
}

namespace {

/// Leases the part's local memory. EAGAIN: not in a handler, where registering would block.
int lease_local(Part& part, pinion_domain* domain) {
  const unsigned access = part.kind == PartKind::put ? PINION_ACCESS_READ : PINION_ACCESS_WRITE;
  const int code = t_inside > 0 ? pinion_try_acquire(domain, part.local, part.bytes, access, &part.lease)
                                : pinion_acquire(domain, part.local, part.bytes, access, &part.lease);
  part.leased = code == 0;
  return code;
}

}  // namespace

/// False: it has to wait for a thread that may register, or for the endpoint's queue.
bool Job::post(Part& part) {
  const int code = part.leased ? 0 : lease_local(part, endpoint_->domain());
  if (code == EAGAIN && t_inside > 0) return false;
  pinion_keys keys{};
  keys.size = sizeof keys;
  if (code != 0 || pinion_lease_keys(&part.lease, &keys) != 0) {
    if (part.leased) static_cast<void>(pinion_release(&part.lease));
    part.leased = false;
    strategy_->ended(part);
    code == EFAULT ? finish(part, EFAULT) : by_message(part);
    return true;
  }
  const transfer::LocalMemory local{part.local, part.bytes, keys.descriptor};
  const Error error = part.kind == PartKind::put ? endpoint_->put(part.peer, local, part.target, part)
                                                 : endpoint_->get(part.peer, local, part.target, part);
  if (error.code == EAGAIN) return false;
  if (error) provider_done(part, error);
  return true;
}

/// True: none waits any more.
bool Job::post_waiting() {
  if (!has_waiting_.load(std::memory_order_acquire)) return true;
  Parts now;
  {
    const std::lock_guard lock(waiting_mutex_);
    now = std::exchange(waiting_, {});
    has_waiting_.store(false, std::memory_order_release);
  }
  while (Part* const part = now.pop_front()) {
    if (post(*part)) continue;
    now.push_front(*part);
    break;
  }
  if (now.empty()) return true;
  const std::lock_guard lock(waiting_mutex_);
  while (Part* const part = waiting_.pop_front()) now.push_back(*part);
  waiting_ = now;
  has_waiting_.store(true, std::memory_order_release);
  return false;
}

void Part::done(const Error& error) {
  const Inside inside;
  job.provider_done(*this, error);
}

void Job::provider_done(Part& part, const Error& error) {
  if (part.leased) static_cast<void>(pinion_release(&part.lease));
  part.leased = false;
  strategy_->ended(part);
  const bool known = error.code == 0 || error.code == ECONNRESET || error.code == ECANCELED;
  finish(part, known ? error.code : EIO);
}

void Job::control(Peer to, const void* message, std::size_t bytes) {
  // An error is the peer's end, which the endpoint reports.
  static_cast<void>(outbox_->send(to, kControlMessage, message, bytes));
  if (!outbox_->empty()) ring();
}

bool Job::is_exposed(Range range) const {
  return segments_.empty() || std::any_of(segments_.begin(), segments_.end(),
                                          [&](const Range& segment) { return segment.contains(range); });
}

Range Job::exposed_part(Range range) const {
  if (segments_.empty()) return range;
  Range largest{};
  for (const Range& segment : segments_) {
    const Range part{std::max(range.begin, page_ceil(segment.begin)),
                     std::min(range.end, page_floor(segment.end))};
    if (!part.empty() && part.bytes() > largest.bytes()) largest = part;
  }
  return largest;
}

/// Its registrations stay until it is gone: until then it may still write.
void Job::cut_off(Peer peer) {
  cut_off_[peer].store(true, std::memory_order_relaxed);
  endpoint_->disconnect(peer);
  gathering_->gone(peer);
  courier_->end(peer, ECONNRESET);
  strategy_->disconnected(peer);
}

/// Peers to which a message could not be kept.
void Job::cut_off_lost() {
  for (Peer peer = 0; outbox_->take_lost(peer);) cut_off(peer);
}

// ---- messages

void Job::Slot::message(Peer from, const void* payload, std::size_t bytes) {
  job_.dispatch(from, kind_, payload, bytes);
}

void Job::Slot::gone(Peer peer) {
  if (kind_ == kUserMessage) job_.lose(peer);
}

/// A protocol cannot go on without its message.
void Job::strategy_message(Peer from, const void* payload, std::size_t bytes) try {
  strategy_->message(from, payload, bytes);
} catch (const std::bad_alloc&) {
  outbox_->lose(from);
  ring();
}

void Job::dispatch(Peer from, MessageKind kind, const void* payload, std::size_t bytes) {
  const Inside inside;
  switch (kind) {
    case kUserMessage:
      return user_message(from, payload, bytes);
    case kDataMessage:
      return serve(from, payload, bytes);
    case kControlMessage:
      return strategy_message(from, payload, bytes);
    case kGatheringMessage:
      gathering_->arrived(from, payload, bytes);
      if (!outbox_->empty()) ring();
      return;
    default:
      return;
  }
}

void Job::user_message(Peer from, const void* payload, std::size_t bytes) {
  UserHeader header;
  if (bytes < sizeof header) return;
  std::memcpy(&header, payload, sizeof header);
  if (header.handler >= PINION_FIREHOSE_HANDLERS || options_.handlers[header.handler] == nullptr) return;
  options_.handlers[header.handler](options_.handler_context, handle(), from,
                                    static_cast<const char*>(payload) + sizeof header, bytes - sizeof header);
}

/// Returns an errno value.
int Job::serve_scattered(const DataMessage& message, char* data, DataMessage& answer) const {
  std::array<iovec, transfer::WirePool::kBytes / sizeof(DataPiece)> pieces;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < message.operand; ++i) {
    const DataPiece piece = piece_of(message, i);
    if (!is_exposed({piece.address, piece.address + piece.bytes})) return EPERM;
    pieces[i] = {reinterpret_cast<void*>(piece.address), piece.bytes};
    bytes += piece.bytes;
  }
  const std::span<const iovec> all(pieces.data(), message.operand);
  if (message.kind == DataMessage::Kind::scattered_put)
    return own_memory::write(
        all, static_cast<const char*>(message.payload) + message.operand * sizeof(DataPiece), bytes);
  const int error = own_memory::read(data, all, bytes);
  answer.payload = error ? nullptr : data;
  answer.bytes = error ? 0 : static_cast<std::uint32_t>(bytes);
  return error;
}

/// A peer's put, get or atomic, or the answer to one of this process's.
void Job::serve(Peer from, const void* payload, std::size_t bytes) {
  const std::size_t most = endpoint_->capabilities().max_message - kDataHeader;
  const auto message = decode_data(payload, bytes, most);
  if (!message) return;
  if (message->kind == DataMessage::Kind::answer) return courier_->answered(from, *message);
  const bool scattered =
      message->kind == DataMessage::Kind::scattered_put || message->kind == DataMessage::Kind::scattered_get;
  DataMessage answer;
  answer.request = message->request;
  char data[transfer::WirePool::kBytes];
  if (cut_off_[from].load(std::memory_order_relaxed)) {
    answer.error = ECONNRESET;
  } else if (scattered) {
    answer.error = serve_scattered(*message, data, answer);
  } else if (!is_exposed({message->address, message->address + message->bytes})) {
    answer.error = EPERM;
  } else if (message->kind == DataMessage::Kind::put) {
    answer.error = own_memory::write(message->address, message->payload, message->bytes);
  } else if (message->kind == DataMessage::Kind::get) {
    answer.error = own_memory::read(data, message->address, message->bytes);
    answer.payload = answer.error ? nullptr : data;
    answer.bytes = answer.error ? 0 : message->bytes;
  } else {
    answer.error = own_memory::apply(message->address, message->bytes, message->operation, message->operand,
                                     message->compare, answer.operand);
  }
  if (!answer.error && !scattered) strategy_->served({message->address, message->address + message->bytes});
  char header[kDataHeader];
  const std::size_t follows = encode(answer, header);
  static_cast<void>(outbox_->send(from, kDataMessage, header, sizeof header, answer.payload, follows));
  if (!outbox_->empty()) ring();
}

void Job::lose(Peer peer) {
  const Inside inside;
  outbox_->drop(peer);
  gathering_->gone(peer);
  strategy_->gone(peer);
  courier_->end(peer, ECONNRESET);
  if (!outbox_->empty()) ring();
}

std::size_t Job::max_message() const { return endpoint_->capabilities().max_message - sizeof(UserHeader); }

Error Job::send(Peer to, unsigned handler, const void* payload, std::size_t bytes) {
  if (t_inside == 0) until([&] { return outbox_->kept(to) < kMostKept; });
  messages_.fetch_add(1, std::memory_order_relaxed);
  const UserHeader header{handler, 0};
  Error error = outbox_->send(to, kUserMessage, &header, sizeof header, payload, bytes);
  if (!outbox_->empty()) ring();
  return error;
}

bool Job::gather(const void* own, std::size_t bytes, char* all) {
  gathering_->begin(own, bytes);
  if (!outbox_->empty()) ring();
  until([this] { return gathering_->is_complete(); });
  return gathering_->end(bytes, all);
}

// ---- progress

bool Job::in_handler() { return t_inside > 0; }

unsigned Job::progress() {
  const unsigned events = endpoint_->progress();
  if (t_inside > 0) return events;
  outbox_->flush();
  courier_->flush();
  post_waiting();
  return events;
}

void Job::ring() {
  bell_.fetch_add(1);
  futex_wake(bell_, 1);
}

/// Returns the time by which it has to be called again.
Time Job::work() try {
  Time next = strategy_->work();
  cut_off_lost();
  // All three, each time.
  bool nothing_waits = outbox_->flush();
  nothing_waits &= courier_->flush();
  nothing_waits &= post_waiting();
  if (!nothing_waits) next = std::min(next, monotonic_now() + kAgain);
  return next;
} catch (const std::bad_alloc&) {
  return monotonic_now() + kAgain;
}

void Job::run_agent() {
  ::prctl(PR_SET_NAME, "pinion-firehose");
  while (!stop_.load()) {
    const std::uint32_t seen = bell_.load();
    futex_wait(bell_, seen, work());
  }
}

void Job::run_progress() {
  ::prctl(PR_SET_NAME, "pinion-progress");
  while (!stop_.load())
    if (endpoint_->progress() == 0) endpoint_->wait(kLook);
}

void Job::statistics(struct pinion_firehose_statistics& out) const {
  out.puts = puts_.load(std::memory_order_relaxed);
  out.gets = gets_.load(std::memory_order_relaxed);
  out.atomics = atomics_.load(std::memory_order_relaxed);
  out.messages = messages_.load(std::memory_order_relaxed);
  out.messaged = messaged_.load(std::memory_order_relaxed);
  out.riders = riders_.load(std::memory_order_relaxed);
  out.packed = packed_.load(std::memory_order_relaxed);
  out.hit_ns = hit_latency_.ns.load(std::memory_order_relaxed);
  out.timed_hits = hit_latency_.puts.load(std::memory_order_relaxed);
  out.miss_ns = miss_latency_.ns.load(std::memory_order_relaxed);
  out.timed_misses = miss_latency_.puts.load(std::memory_order_relaxed);
  strategy_->add_to(out);
}

}  // namespace pinion::firehose
