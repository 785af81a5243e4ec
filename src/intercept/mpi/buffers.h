// The buffers of one call: each that reaches the threshold is leased when the wrapper names it. It is
// released at the end of the call, or handed over to the object that waits for the operation's end. Lives in
// the wrapper's frame; one thread. Small calls (type_sizes.h) pass by.
#pragma once

#include <array>
#include <vector>

#include "engine/lease_path.h"
#include "intercept/mpi/arrivals.h"
#include "intercept/mpi/groups.h"
#include "intercept/mpi/holdings.h"
#include "intercept/mpi/known_handles.h"
#include "intercept/mpi/nesting.h"
#include "intercept/mpi/operation.h"
#include "intercept/mpi/session.h"
#include "intercept/mpi/touched.h"
#include "intercept/mpi/type_sizes.h"
#include "intercept/verbs/call_context.h"
#include "predict/unwind.h"

namespace pinion::mpi::PINION_MPI_ABI {

class Buffers {
 public:
  Buffers(const EntryFrame& entry, CallKind kind)
      : entry_(entry), kind_(kind), least_(g_least_bytes.load(std::memory_order_relaxed)) {}
  ~Buffers() {
    if (nesting_used_) release();
    if (told_) verbs::t_mpi_call = {};
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  /// Whether anything is looked at now.
  bool watched() const { return least_ != kNothing; }

  // ---- questions to MPI ----
  // Only about handles that are known to be good (known_handles.h). A call with other handles names its
  // buffers once more after its success, which proves them good.

  /// False while questions about it are unsafe.
  bool may_ask(Comm comm) {
    return comm == library().comm_world || may_ask(KnownHandles::communicators(), key_of(comm));
  }
  template <class NameBuffers>
  void before_call(NameBuffers name_buffers) {
    name_buffers();
    if (doubtful_) [[unlikely]]
      enter();  // for calls below this one
  }
  template <class NameBuffers>
  void after_call(int result, NameBuffers name_buffers) {
    if (!doubtful_ || result != kSuccess) [[likely]]
      return;
    start_over();
    name_buffers();
  }
  /// The call has succeeded already: all its handles are good.
  void called() { called_ = true; }

  // ---- the other side; `peer` enters the log ----
  void among(Comm comm, int peer = -1) {
    comm_ = comm;
    party_ = Party::communicator;
    peer_ = peer;
  }
  void toward(Win win, int target) {
    win_ = win;
    party_ = Party::window;
    peer_ = target;
  }
  /// Calls below this one pass by, with or without buffers of its own: file operations make transfers of
  /// theirs.
  void alone() {
    nesting_used_ = true;
    if (!nesting_.enter()) least_ = kNothing;
  }

  // ---- point-to-point, with one process of the communicator ----
  void sends(const void* buffer, Aint n, Datatype type, int dest) {
    if (reaches(n, type) && dest != kProcNull) use(buffer, n, type, Access::read, dest);
  }
  void receives(void* buffer, Aint n, Datatype type, int source) {
    if (reaches(n, type) && source != kProcNull) use_received(buffer, n, type, source, -1);
  }
  /// Of a matched message, which may be known to be shorter.
  void receives_matched(void* buffer, Aint n, Datatype type, const Message* message) {
    if (message && reaches(n, type)) use_matched(buffer, n, type, *message);
  }
  /// Where all that is posted arrives.
  void receives_all(void* buffer, Aint n, Datatype type, int source) {
    if (reaches(n, type) && source != kProcNull) use(buffer, n, type, Access::write, source);
  }
  void replaces(void* buffer, Aint n, Datatype type, int dest, int source) {
    if (!reaches(n, type) || (dest == kProcNull && source == kProcNull)) return;
    use(buffer, n, type, Access::write, source == kProcNull ? dest : source);
  }

  // ---- with all of them: collectives, and operations without another side ----
  void reads(const void* buffer, Aint n, Datatype type) {
    if (buffer != kInPlace && reaches(n, type)) use(buffer, n, type, Access::read, kAll);
  }
  void writes(void* buffer, Aint n, Datatype type) {
    if (buffer != kInPlace && reaches(n, type)) use(buffer, n, type, Access::write, kAll);
  }
  /// The blocks that counts and displacements (in units of the type's extent) describe: as one range, or
  /// where they lie far apart, each for itself.
  template <class N, class D>
  void reads_blocks(const void* buffer, const N* counts, const D* offsets, Aint blocks, Datatype type) {
    use_blocks(buffer, counts, offsets, blocks, type, Access::read);
  }
  template <class N, class D>
  void writes_blocks(void* buffer, const N* counts, const D* offsets, Aint blocks, Datatype type) {
    use_blocks(buffer, counts, offsets, blocks, type, Access::write);
  }
  /// The same with a type for each, and displacements in bytes.
  template <class N, class D>
  void reads_typed(const void* buffer, const N* counts, const D* offsets, const Datatype* types,
                   Aint blocks) {
    use_typed(buffer, counts, offsets, types, blocks, Access::read);
  }
  template <class N, class D>
  void writes_typed(void* buffer, const N* counts, const D* offsets, const Datatype* types, Aint blocks) {
    use_typed(buffer, counts, offsets, types, blocks, Access::write);
  }
  /// Memory that other processes may read and write.
  void exposes(void* memory, Aint bytes);

  // ---- persistent requests ----
  /// From here on buffers are written down instead of leased, also while recording is off.
  void note_down(Remembered& remembered) {
    remembered.kind = kind_;
    remembered_ = &remembered;
    least_ = g_threshold.load(std::memory_order_relaxed);
  }
  /// Leases the buffers written down.
  void repeat(const Remembered& remembered);

  // ---- until when ----
  /// The status for MPI to fill in: the program's own, or ours where the length of a receive is to be learnt.
  Status* status(Status* given) {
    return (receive_.posted > 0 || doubtful_) && given == kStatusIgnore ? &own_status_ : given;
  }
  /// After a call that received.
  void received(int result, const Status* status) {
    if (receive_.posted > 0 && result == kSuccess && !status->cancelled())
      settle_arrival(nesting_.thread(), nesting_.leases(), receive_, status->bytes());
  }
  void hand_over_to(Request request) {
    if (count_ > 0 || receive_.posted > 0) move_to(request);
  }
  void hand_over_to(Holdings& holdings, std::uintptr_t object, std::uint64_t part) {
    if (count_ > 0) move_to(holdings, object, part);
  }

 private:
  enum class Party : std::uint8_t { none, communicator, window };
  static constexpr int kAll = -1000;  ///< instead of a rank: the other side is everybody of the party

  /// Made when a buffer reaches the threshold: small messages skip its cost.
  union Slot {
    Slot() {}
    Transfer transfer;
  };

  std::uint64_t bytes_of(Aint n, Datatype type) {
    if (n <= 0 || type == library().datatype_null) return 0;
    int size = static_cast<int>(g_type_sizes.find(type));
    if (size == 0) {
      if (!g_type_sizes.expects(type) && !may_ask(KnownHandles::datatypes(), key_of(type))) return 0;
      library().type_size(type, &size);
      g_type_sizes.learn(type, size);
    }
    return size >= 0 ? static_cast<std::uint64_t>(size) * static_cast<std::uint64_t>(n) : huge_bytes(n, type);
  }
  static std::uint64_t huge_bytes(Aint n, Datatype type);
  bool reaches(Aint n, Datatype type) { return bytes_of(n, type) >= least_; }
  bool may_ask(KnownHandles& known, KnownHandles::Key handle) {
    if (called_) {
      known.add(handle);
      return true;
    }
    if (known.contains(handle)) return true;
    doubtful_ = true;
    return false;
  }
  void start_over();

  void use(const void* buffer, Aint n, Datatype type, Access access, int other);
  void use_received(void* buffer, Aint n, Datatype type, int source, std::int64_t known);
  void use_matched(void* buffer, Aint n, Datatype type, Message message);
  template <class N, class D>
  void use_blocks(const void* buffer, const N* counts, const D* offsets, Aint blocks, Datatype type,
                  Access access);
  template <class N, class D>
  void use_typed(const void* buffer, const N* counts, const D* offsets, const Datatype* types, Aint blocks,
                 Access access);

  struct Elements;
  /// Of a type whose data lie apart: the ranges that it touches.
  void use_with_gaps(const Elements& elements, Access access, int other);
  template <class BlockOf>
  void use_each(Aint blocks, BlockOf block, Access access);
  /// Whether it is registered by itself: other data are packed by every MPI.
  bool pays(Range range, std::uint64_t data) const;
  /// Each range for itself where all of them pay, else the hull, else those that pay. False where the ranges
  /// are unknown and the hull does not pay. After will_lease().
  bool lease_touched(Touched& touched, Range hull, std::uint64_t data, Access access, int other);

  bool is_left_out(int other);
  bool will_lease(int other);
  /// False where leasing is off: inside another call, or because libraries below register (--front
  /// verbs); these then get the call's context.
  bool enter();
  void lease(Range range, Access access, int other);
  /// Where the other side is not left out.
  void lease_at_once(Range range, Access access, int other);
  void lease_received(Range range, int source, std::int64_t known);
  /// In parts, where the device takes no such region.
  void acquire(Range range, Access access, int peer, Refusal refusal = Refusal::charge);
  void acquire_part(Range range, Access access, int peer, Refusal refusal);
  template <class Take>
  void take_leases(Take take);
  void move_to(Request request);
  void move_to(Holdings& holdings, std::uintptr_t object, std::uint64_t part);
  void release();

  const EntryFrame entry_;
  CallKind kind_;
  Party party_ = Party::none;
  bool nesting_used_ = false;
  bool told_ = false;
  bool doubtful_ = false;  ///< met a handle that may be bad
  bool called_ = false;    ///< the program's call has succeeded
  int peer_ = -1;
  std::uint64_t least_;
  union {
    Comm comm_;
    Win win_;
  };
  Remembered* remembered_ = nullptr;
  std::size_t count_ = 0;  ///< of slots_ in use
  Receive receive_;
  Nesting nesting_;
  std::vector<Transfer> more_;  ///< of blocks that lie far apart
  Status own_status_;
  CallPoint point_;
  std::array<Slot, 3> slots_;  ///< the most buffers of a call
};

/// The length of a message by Mprobe, for the receive that follows in the same thread.
void note_matched(Message message, std::uint64_t bytes);

}  // namespace pinion::mpi::PINION_MPI_ABI
