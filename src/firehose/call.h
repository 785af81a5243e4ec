// A call of the program and its parts. Values with counts: Calls (calls.h) makes and ends them.
//
// A call is one put, get, scattered put or get, or atomic. A part is bytes of one call that travel together:
// within one bucket of the peer's, and one transfer of the provider's. The caller and each part count in
// `left`; the last one out ends the call. A part that has begun needs no further memory to end: it waits in
// lists through its own link.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "firehose/held_firehose.h"
#include "firehose/pool.h"
#include "pinion/firehose.h"
#include "transfer/endpoint/endpoint.h"

namespace pinion::firehose {

struct Ways;

/// A thread's calls without handle, since its last fence.
struct ImplicitCalls {
  std::atomic<std::uint64_t> left{0};
  std::atomic<int> error{0};  ///< the first error; 0: none
};

/// The way of a call to the peer's memory; the slowest counts if it has several parts.
enum class Way : std::uint8_t { held, asked_for, message };

struct Call {
  explicit Call(Peer to) : peer(to) {}

  void fail(int code) {
    int none = 0;
    error.compare_exchange_strong(none, code, std::memory_order_relaxed);
  }
  void went(Way by) {
    if (way.load(std::memory_order_relaxed) < by) way.store(by, std::memory_order_relaxed);
  }
  bool is_done() const { return left.load(std::memory_order_acquire) == 0; }

  const Peer peer;
  std::size_t measured = 0;  ///< small pieces, whose time is measured; 0: it is not
  bool together = false;     ///< these travel in messages
  Time begun = 0;
  std::atomic<unsigned> left{1};
  std::atomic<int> error{0};                ///< the first error; 0: none
  std::shared_ptr<ImplicitCalls> implicit;  ///< null: its caller waits for it
  std::atomic<Way> way{Way::held};          ///< approximate where parts end beside each other
};

enum class PartKind : std::uint8_t { put, get, atomic, scattered_put, scattered_get };

/// Pieces of a scattered put or get that travel in one message.
struct Scattered {
  std::vector<char> request;                   ///< its payload: their list, and the data to put
  std::vector<pinion_firehose_piece> targets;  ///< places of a get's data
  std::size_t answer = 0;                      ///< bytes that come back
};

/// `error` is the one that it ends with, in lists of ended parts.
struct Part final : transfer::Operation, BasicWaiter<> {
  Part(Ways& of_job, Call& of) : ways(of_job), call(&of), peer(of.peer) {}
  /// The provider has carried it out, or has failed.
  void done(const Error& error) override;

  Ways& ways;
  Call* const call;
  const Peer peer;
  PartKind kind = PartKind::put;
  char* local = nullptr;  ///< only read by a put; of an atomic: where the old value goes
  std::uint64_t remote = 0;
  std::size_t bytes = 0;

  std::uint8_t operation = 0;  ///< an atomic's, as the next two
  std::uint64_t operand = 0;   ///< the number of pieces, if scattered
  std::uint64_t compare = 0;

  std::unique_ptr<Scattered> scattered;  ///< its request is `local`

  Link<Part> link;  ///< belongs to the list that has it, one at a time

  std::size_t asked = 0;    ///< bytes; guarded by the courier
  unsigned unanswered = 0;  ///< messages; guarded by the courier

  // Belongs to RemoteAccess.
  pinion_lease lease = PINION_LEASE_INIT;
  transfer::RemoteMemory target;
  bool leased = false;

  // Belongs to the strategy.
  bool sampled = false;  ///< its bookkeeping is measured
  bool rides = false;    ///< it travels with its miss
  Ticks begun = 0;       ///< its time is measured since; 0: it is not
};

using Parts = LinkedList<Part, &Part::link>;

}  // namespace pinion::firehose
