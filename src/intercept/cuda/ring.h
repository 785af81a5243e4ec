// Pinned memory that staged copies go through: a ring for each context, given out in parts of whole slots,
// and an event for each kLeastPiece of it.
//
// Owns the memory, which is registered once in its context and never unregistered: that may wait for the
// program. A ring serves the context that registered it alone, because copies of others would fail when that
// context is destroyed under them. Forked children do not have the memory, so a fork need not copy it.
//
// Registering waits while a plain copy of another thread waits for its stream, and that stream may wait for
// the caller's copy. So it is done while no submission of the program is under way; else the caller gets no
// part.
//
// One mutex guards the table, and is held for no call of the driver's. Any thread outside of memory hooks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/mutex.h"
#include "device/cuda/driver_api.h"
#include "intercept/cuda/staging_figures.h"

namespace pinion::cuda {

/// A context, and its number where the driver gives one: handles recur.
struct ContextKey {
  Context context = nullptr;
  unsigned long long id = 0;

  bool operator==(const ContextKey&) const = default;
};

class PinnedRings {
  struct Ring;

 public:
  /// A part of the ring of the current context, until its destructor.
  class Part {
   public:
    /// `bytes` are what the copy could use at most. It may get less, or nothing.
    Part(PinnedRings& rings, const Driver& driver, const ContextKey& key, std::size_t bytes);
    /// An empty one, for take().
    explicit Part(PinnedRings& rings) : rings_(rings) {}
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    /// Takes a part; see the constructor.
    void take(const Driver& driver, const ContextKey& key, std::size_t bytes);
    explicit operator bool() const { return ring_ != nullptr; }
    std::size_t bytes() const { return slots_ * staging::kSlotBytes; }
    char* memory(std::size_t offset) const;
    /// The event of the piece that begins there.
    Event event(std::size_t offset) const;
    /// The engine may still use it: nobody gets it again.
    void leave_to_engine() { ring_ = nullptr; }

   private:
    friend class PinnedRings;
    PinnedRings& rings_;
    Ring* preparing_ = nullptr;  ///< by this thread, which may be thrown out of it
    Ring* ring_ = nullptr;
    std::size_t first_ = 0, slots_ = 0;
  };

  /// Contexts were destroyed or reset, or will be: rings are registered anew at their next use. A ring that
  /// is in use stays as it is until then. 0: any context.
  void contexts_changed(unsigned long long id);
  /// In a forked child: the memory and the contexts are the parent's.
  void abandon_after_fork();

 private:
  enum class State : unsigned char {
    unused,
    preparing,  ///< by a thread that holds no lock
    ready,
    stale,   ///< its context has changed
    refused  ///< the driver did not register it
  };
  struct Ring {
    State state = State::unused;
    bool outdated = false;  ///< its context changed while it was in use, or being prepared
    ContextKey key;
    ContextKey registered_by;
    char* memory = nullptr;
    std::uint32_t used = 0;                 ///< a bit a slot
    unsigned refusals = 0, left_alone = 0;  ///< how often it could not be prepared; copies until the next try
    std::array<Event, staging::kEvents> events{};
  };
  static_assert(staging::kSlots <= 32);
  enum class Prepared { yes, later, never };

  Ring* ring_of(const ContextKey& key) REQUIRES(mutex_);
  /// True: the caller has to prepare it.
  bool wants_preparing(Ring& ring, const ContextKey& key) REQUIRES(mutex_);
  static Prepared prepare(Ring& ring, const Driver& driver);
  /// AlreadyRegistered: it was so by this context.
  static Result register_memory(Ring& ring, const Driver& driver);
  void note(Ring& ring, Prepared prepared);
  bool give(Ring& ring, std::size_t bytes, Part& part) REQUIRES(mutex_);

  Mutex mutex_;
  std::array<Ring, staging::kMostRings> rings_ GUARDED_BY(mutex_);
};

/// Those of the process.
PinnedRings& pinned_rings();

}  // namespace pinion::cuda
