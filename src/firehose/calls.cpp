#include "firehose/calls.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "firehose/courier.h"
#include "firehose/data_message.h"
#include "firehose/own_memory.h"
#include "firehose/strategy.h"

namespace pinion::firehose {

namespace {

std::uint64_t next_job() {
  static std::atomic<std::uint64_t> next{0};
  return ++next;
}

/// Makes the message of so many pieces. Null: out of memory.
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

/// A put or get of this process's own memory.
void access_own(Call& call, PartKind kind, const pinion_firehose_piece& piece) {
  const int error = kind == PartKind::put ? own_memory::write(piece.remote, piece.local, piece.bytes)
                                          : own_memory::read(piece.local, piece.remote, piece.bytes);
  if (error) call.fail(error);
}

}  // namespace

Calls::Calls(Ways& ways) : ways_(ways), self_(ways.endpoint->self()), number_(next_job()) {}

void Calls::count(Call& call) {
  live_.fetch_add(1, std::memory_order_relaxed);
  if (call.implicit) call.implicit->left.fetch_add(1, std::memory_order_relaxed);
}

void Calls::put_took(const Call& call, Duration time) {
  const Way way = call.way.load(std::memory_order_relaxed);
  if (call.peer == self_ || way == Way::message) return;
  Latency& latency = way == Way::held ? hit_latency_ : miss_latency_;
  latency.ns.fetch_add(static_cast<std::uint64_t>(time), std::memory_order_relaxed);
  latency.puts.fetch_add(1, std::memory_order_relaxed);
}

const std::shared_ptr<ImplicitCalls>& Calls::implicit() {
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
struct Calls::Batch {
  std::array<Part*, Strategy::kMostTogether> parts;
  std::size_t count = 0;
};

/// Returns null if there is no memory: the call fails.
Part* Calls::make_part(Call& call, PartKind kind) {
  auto* const part = new (std::nothrow) Part(ways_, call);
  if (part == nullptr) {
    call.fail(ENOMEM);
    return nullptr;
  }
  part->kind = kind;
  call.left.fetch_add(1, std::memory_order_relaxed);
  return part;
}

/// False: out of memory.
bool Calls::add(Batch& batch, Call& call, PartKind kind, const pinion_firehose_piece& piece) {
  const std::size_t most = ways_.endpoint->capabilities().max_transfer;
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
    ways_.strategy->begin(batch.parts);
    batch.count = 0;
  }
  return true;
}

/// Small pieces, where that is faster.
bool Calls::travels_together(Call& call, std::span<const pinion_firehose_piece> pieces) {
  if (pieces.size() < 2 || call.peer == self_ || ways_.is_cut_off(call.peer)) return false;
  for (const pinion_firehose_piece& piece : pieces)
    if (piece.bytes == 0 || piece.bytes > Packing::kMostBytes) return false;
  call.measured = pieces.size();
  call.together = packing_.together(pieces.size());
  call.begun = monotonic_now();
  return call.together;
}

/// The first of the pieces, as many as one message holds; returns how many. 0: out of memory.
std::size_t Calls::add_together(Call& call, PartKind kind, std::span<const pinion_firehose_piece> pieces) {
  const std::size_t most = ways_.endpoint->capabilities().max_message - kDataHeader;
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
  ways_.courier->carry(*part);
  return count;
}

void Calls::count(PartKind kind, std::size_t pieces) {
  (kind == PartKind::put ? puts_ : gets_).fetch_add(pieces, std::memory_order_relaxed);
}

void Calls::start_together(Call& call, PartKind kind, std::span<const pinion_firehose_piece> pieces) {
  call.went(Way::message);
  while (!pieces.empty()) {
    const std::size_t added = add_together(call, kind, pieces);
    if (added == 0) return start_apart(call, kind, pieces);
    count(kind, added);
    packed_.fetch_add(added, std::memory_order_relaxed);
    pieces = pieces.subspan(added);
  }
}

void Calls::start_apart(Call& call, PartKind kind, std::span<const pinion_firehose_piece> pieces) {
  Batch batch;
  for (const pinion_firehose_piece& piece : pieces) {
    if (piece.bytes == 0) continue;
    count(kind, 1);
    if (call.peer == self_)
      access_own(call, kind, piece);
    else if (ways_.is_cut_off(call.peer))
      call.fail(ECONNRESET);
    else if (!add(batch, call, kind, piece))
      break;
  }
  if (batch.count > 0) ways_.strategy->begin({batch.parts.data(), batch.count});
}

void Calls::start(Call& call, PartKind kind, std::span<const pinion_firehose_piece> pieces) {
  travels_together(call, pieces) ? start_together(call, kind, pieces) : start_apart(call, kind, pieces);
}

void Calls::start_atomic(Call& call, std::uint64_t remote, std::size_t bytes, unsigned operation,
                         std::uint64_t operand, std::uint64_t compare, std::uint64_t* old) {
  atomics_.fetch_add(1, std::memory_order_relaxed);
  if (call.peer == self_) {
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
  ways_.courier->carry(*part);
}

void Calls::part_over(Call& call) {
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

void Calls::answered(Part& part, int error) {
  if (!error && part.call->error.load(std::memory_order_relaxed) == 0) ways_.strategy->answered(part);
  finish(part, error);
}

void Calls::finish(Part& part, int error) {
  Call& call = *part.call;
  if (error) call.fail(error);
  delete &part;
  part_over(call);
}

void Calls::add_to(struct pinion_firehose_statistics& out) const {
  out.puts = puts_.load(std::memory_order_relaxed);
  out.gets = gets_.load(std::memory_order_relaxed);
  out.atomics = atomics_.load(std::memory_order_relaxed);
  out.packed = packed_.load(std::memory_order_relaxed);
  out.hit_ns = hit_latency_.ns.load(std::memory_order_relaxed);
  out.timed_hits = hit_latency_.puts.load(std::memory_order_relaxed);
  out.miss_ns = miss_latency_.ns.load(std::memory_order_relaxed);
  out.timed_misses = miss_latency_.puts.load(std::memory_order_relaxed);
}

}  // namespace pinion::firehose
