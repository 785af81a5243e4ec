// This process's memory as its peers hold it: carries out what the owner (owner.h) asks for. Registers and
// deregisters buckets (pins.h), recalls them before their memory changes (recalls.h), and gives room back
// when leases of this process lack some.
//
// Messages of peers: any thread, inside the endpoint's progress. work(): the agent, which alone registers;
// peers never keep it waiting. A mutex guards the owner; a thread holds it outside of device calls and waits.
// Messages are sent under it, in the protocol's order.
//
// Memory is exposed only where its change can wait for the peers. It stays private where another monitor than
// libc's functions sees events, and while sight is lost. Where the provider writes by address past any key
// (shm), Pinion's own segments are exposed: they leave the arena once all peers have let go. A peer that is
// gone without that may be at a write still, so its buckets stay until its process has ended.
#pragma once

#include <array>
#include <atomic>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "firehose/owner.h"
#include "firehose/pins.h"
#include "firehose/recalls.h"
#include "firehose/typical_time.h"
#include "firehose/ways.h"

namespace pinion::firehose {

/// Memory that peers may have registered.
enum class Exposes : std::uint8_t { nothing, own_segments, everything };

class Owning final : Occupant {
 public:
  Owning(Ways& ways, BucketSize size, const Quota& quota);
  /// Peers have let go, and the agent has ended.
  void close();

  // ---- any thread ----

  void moved(Peer from, const Move& move);
  void released(Peer from, const Release& release);
  void gone(Peer peer);
  /// A peer's operation on that memory came by message, and was carried out.
  void served(Range memory);
  void add_to(struct pinion_firehose_statistics& out) const;

  // ---- the agent ----

  /// Returns the time by which it has to be called again.
  Time work();

 private:
  template <class Event>
  void run(Event&& event);
  void carry_out_actions() REQUIRES(mutex_);
  static bool exposes(const void* self, Bucket bucket);
  Range exposed_part(Bucket bucket) const;
  bool asked_for(std::uint64_t bytes) override;

  void share_room(Time now);
  bool take_task(OwnerAction& task);
  void carry_out(const OwnerAction& task);
  void carry_out_changes();
  void pin(const OwnerAction& task);
  void unpin(const OwnerAction& task);
  void look_at_served();
  void revoked(Revocation revocation);
  void begin_revocations();
  void end_revocations();
  void bury(Time now) REQUIRES(mutex_);

  Ways& ways_;
  const BucketSize size_;
  const Quota quota_;
  std::atomic<Exposes> exposes_{Exposes::nothing};

  mutable Mutex mutex_;
  Owner owner_ GUARDED_BY(mutex_);
  OwnerActionList tasks_ GUARDED_BY(mutex_);       ///< left to the agent
  std::vector<bool> outlives_ GUARDED_BY(mutex_);  ///< whether a peer is gone, but its process lives
  Time bury_at_ GUARDED_BY(mutex_) = kNever;       ///< when the agent looks at those again
  std::vector<Range> served_ GUARDED_BY(mutex_);   ///< memory to look at, with room for kMostLooks

  Pins& pins_;        ///< never freed: hooks may be inside
  Recalls& recalls_;  ///< never freed: hooks may be inside

  bool pinning_ = false;                    ///< the agent's, as all below
  std::optional<Recalls::Asked> revoking_;  ///< begins next
  Time carry_out_at_ = kNever;
  Time grow_at_ = kNever;  ///< when the memory for peers grows, after it has shrunk

  std::atomic<std::uint64_t> missing_{0};  ///< bytes that leases lack
  TypicalTime pin_time_, unpin_time_;      ///< both include the wait for the agent

  struct Sums {
    Duration pins = 0, unpins = 0;
  };
  Sums spent_ GUARDED_BY(mutex_);  ///< of the same times
};

}  // namespace pinion::firehose
