// The program's calls: cuts each into parts, gives them to the strategy or to the courier, and ends the call
// with its last part. Owns the counts of calls and the parts until they end.
//
//   C API --> Calls::start() --> parts --> Strategy::begin() --> RemoteAccess: Endpoint::put, get
//                                                            --> Courier: a message to the peer's PeerService
//
// Any thread, without locks. A call that cannot begin throws bad_alloc, without effect. One that has begun
// ends, by ENOMEM if a part of it found no memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "firehose/call.h"
#include "firehose/packing.h"
#include "firehose/ways.h"

namespace pinion::firehose {

class Calls {
 public:
  /// The ways are complete before the first call; `bucket`: as Strategy::bucket_bytes().
  explicit Calls(Ways& ways);
  void cut_at(std::uint64_t bucket) { bucket_ = bucket; }

  /// Counts a call that was made, and is to be ended.
  void count(Call& call);
  /// Adds puts or gets to a call, under way from here on. Throws nothing: the call fails.
  void start(Call& call, PartKind kind, std::span<const pinion_firehose_piece> pieces);
  void start_atomic(Call& call, std::uint64_t remote, std::size_t bytes, unsigned operation,
                    std::uint64_t operand, std::uint64_t compare, std::uint64_t* old);
  /// The caller has added all; the call ends with its last part.
  void launched(Call& call) { part_over(call); }
  /// Notes how long a blocking put took, from the call to delivery.
  void put_took(const Call& call, Duration time);
  /// The implicit calls of the calling thread. Throws bad_alloc.
  const std::shared_ptr<ImplicitCalls>& implicit();
  /// True: no call of the process is under way.
  bool all_done() const { return live_.load(std::memory_order_acquire) == 0; }

  /// The part is over; frees it.
  void finish(Part& part, int error);
  /// The part, which went by message, is over; frees it.
  void answered(Part& part, int error);

  void add_to(struct pinion_firehose_statistics& out) const;

 private:
  struct Batch;
  struct Latency {
    std::atomic<std::uint64_t> ns{0}, puts{0};
  };

  Part* make_part(Call& call, PartKind kind);
  bool add(Batch& batch, Call& call, PartKind kind, const pinion_firehose_piece& piece);
  bool travels_together(Call& call, std::span<const pinion_firehose_piece> pieces);
  void count(PartKind kind, std::size_t pieces);
  void start_together(Call& call, PartKind kind, std::span<const pinion_firehose_piece> pieces);
  void start_apart(Call& call, PartKind kind, std::span<const pinion_firehose_piece> pieces);
  std::size_t add_together(Call& call, PartKind kind, std::span<const pinion_firehose_piece> pieces);
  void part_over(Call& call);

  Ways& ways_;
  const Peer self_;
  const std::uint64_t number_;  ///< tells this job from others of the process
  std::uint64_t bucket_ = 0;
  Packing packing_;
  std::atomic<std::uint64_t> live_{0};  ///< calls under way
  std::atomic<std::uint64_t> puts_{0}, gets_{0}, atomics_{0}, packed_{0};
  Latency hit_latency_, miss_latency_;
};

}  // namespace pinion::firehose
