// The buffers of one call, in the words of calls.table. Each that reaches the threshold is leased when the
// wrapper names it (call_leases.h); a persistent request's is written down instead. Lives in the wrapper's
// frame; one thread. Small calls (type_sizes.h) pass by.
#pragma once

#include "intercept/mpi/call_leases.h"
#include "intercept/mpi/other_side.h"
#include "intercept/mpi/session.h"
#include "intercept/mpi/typed_data.h"

namespace pinion::mpi::PINION_MPI_ABI {

class Buffers {
 public:
  Buffers(const EntryFrame& entry, CallKind kind)
      : least_(g_least_bytes.load(std::memory_order_relaxed)), leases_(entry, kind) {}
  [[gnu::always_inline]] ~Buffers() {}

  /// Whether anything is looked at now.
  bool watched() const { return least_ != kNothing; }

  // ---- the call, before and after ----
  bool may_ask(Comm comm) { return OtherSide::may_ask(questions_, comm); }
  template <class NameBuffers>
  void before_call(NameBuffers name_buffers) {
    name_buffers();
    if (questions_.refused()) [[unlikely]]
      leases_.enter(side_.peer());  // for calls below this one
  }
  template <class NameBuffers>
  void after_call(int result, NameBuffers name_buffers) {
    if (!questions_.refused() || result != kSuccess) [[likely]]
      return;
    leases_.start_over();
    if (remembered_) remembered_->uses.clear();
    questions_.called();
    name_buffers();
  }
  /// The call has succeeded already: all its handles are good.
  void called() { questions_.called(); }

  // ---- the other side; `peer` enters the log ----
  void among(Comm comm, int peer = -1) { side_.among(comm, peer); }
  void toward(Win win, int target) { side_.toward(win, target); }
  /// Calls below this one pass by, with or without buffers of its own: file operations make transfers of
  /// theirs.
  void alone() {
    if (!leases_.outermost()) least_ = kNothing;
  }

  // ---- point-to-point, with one process of the communicator ----
  void sends(const void* buffer, Aint n, Datatype type, int dest) {
    if (dest != kProcNull) lease(buffer, n, type, Access::read, dest);
  }
  void receives(void* buffer, Aint n, Datatype type, int source) {
    if (source != kProcNull) lease_arriving(buffer, n, type, source, kLearnt);
  }
  /// Names the buffer of a matched message, which may be known to be shorter.
  void receives_matched(void* buffer, Aint n, Datatype type, const Message* message);
  /// Names the buffer of a receive where all that is posted arrives.
  void receives_all(void* buffer, Aint n, Datatype type, int source) {
    if (source != kProcNull) lease(buffer, n, type, Access::write, source);
  }
  void replaces(void* buffer, Aint n, Datatype type, int dest, int source) {
    if (dest == kProcNull && source == kProcNull) return;
    lease(buffer, n, type, Access::write, source == kProcNull ? dest : source);
  }

  // ---- with all of them: collectives, and operations without another side ----
  void reads(const void* buffer, Aint n, Datatype type) {
    if (buffer != kInPlace) lease(buffer, n, type, Access::read, OtherSide::kAll);
  }
  void writes(void* buffer, Aint n, Datatype type) {
    if (buffer != kInPlace) lease(buffer, n, type, Access::write, OtherSide::kAll);
  }
  /// Name the blocks that counts and displacements (in units of the type's extent) describe: as one range, or
  /// where they lie far apart, each for itself.
  template <class N, class D>
  void reads_blocks(const void* buffer, const N* counts, const D* offsets, Aint blocks, Datatype type) {
    lease_blocks(buffer, counts, offsets, blocks, type, Access::read);
  }
  template <class N, class D>
  void writes_blocks(void* buffer, const N* counts, const D* offsets, Aint blocks, Datatype type) {
    lease_blocks(buffer, counts, offsets, blocks, type, Access::write);
  }
  /// Name blocks with a type for each, and displacements in bytes.
  template <class N, class D>
  void reads_typed(const void* buffer, const N* counts, const D* offsets, const Datatype* types,
                   Aint blocks) {
    lease_typed(buffer, counts, offsets, types, blocks, Access::read);
  }
  template <class N, class D>
  void writes_typed(void* buffer, const N* counts, const D* offsets, const Datatype* types, Aint blocks) {
    lease_typed(buffer, counts, offsets, types, blocks, Access::write);
  }
  /// Names memory that other processes may read and write.
  void exposes(void* memory, Aint bytes);

  // ---- persistent requests ----
  /// Buffers are written down after this instead of leased, also while recording is off.
  void note_down(Remembered& remembered) {
    remembered.kind = leases_.kind();
    remembered_ = &remembered;
    least_ = g_threshold.load(std::memory_order_relaxed);
  }
  /// Leases the buffers written down.
  void repeat(const Remembered& remembered) { leases_.repeat(remembered); }

  // ---- until when ----
  /// The status for MPI to fill in: the program's own, or ours where the length of a receive is to be learnt.
  Status* status(Status* given) {
    return (leases_.awaits_length() || questions_.refused()) && given == kStatusIgnore ? &own_status_ : given;
  }
  /// Learns from a call that received.
  void received(int result, const Status* status) {
    if (leases_.awaits_length() && result == kSuccess && !status->cancelled())
      leases_.received(status->bytes());
  }
  void hand_over_to(Request request) {
    // A null request: nothing went under way.
    if (request != library().request_null) leases_.hand_over_to(key_of(request));
  }
  void hand_over_to(Holdings& holdings, std::uintptr_t object, std::uint64_t part) {
    leases_.hand_over_to(holdings, object, part);
  }

 private:
  // Stand for the bytes that arrive of a buffer: as many as is learnt, or all that is named.
  static constexpr std::int64_t kLearnt = -1, kAsNamed = -2;
  // A hit is served without a frame: all further work is a jump, for which the arguments have to fit into
  // registers.
  void lease(const void* buffer, Aint n, Datatype type, Access access, int other);
  void lease_arriving(void* buffer, Aint n, Datatype type, int source, std::int64_t arrives);
  void lease_otherwise(const void* buffer, Aint n, Datatype type, Access access, int other);
  void lease_arriving_otherwise(void* buffer, Aint n, Datatype type, int source, std::int64_t arrives);
  /// Leases memory that is registered already, where that takes no question and leaves no record. False: the
  /// ordinary way is to be taken.
  bool lease_quickly(const void* buffer, Aint n, Datatype type, Access access, std::int64_t arrives);
  void lease_range(const void* buffer, Aint n, Datatype type, Access access, int other, std::int64_t arrives);
  void lease_with_gaps(const Elements& elements, Access access, int other);
  template <class N, class D>
  void lease_blocks(const void* buffer, const N* counts, const D* offsets, Aint blocks, Datatype type,
                    Access access);
  template <class N, class D>
  void lease_typed(const void* buffer, const N* counts, const D* offsets, const Datatype* types, Aint blocks,
                   Access access);
  template <class BlockOf>
  void lease_each(Aint blocks, BlockOf block, Access access);

  /// True where memory that goes to or comes from `other` is leased now, or written down.
  bool concerns(int other) {
    return !side_.is_left_out(questions_, other) && (remembered_ || leases_.enter(side_.peer()));
  }
  /// Leases a range, or writes it down; after concerns().
  void take(Range range, Access access, int other, std::int64_t arrives = kAsNamed);

  std::uint64_t least_;
  HandleQuestions questions_;
  OtherSide side_;
  Remembered* remembered_ = nullptr;
  CallLeases leases_;
  Status own_status_;
};

/// The length of a message by Mprobe, for the receive that follows in the same thread.
void note_matched(Message message, std::uint64_t bytes);

}  // namespace pinion::mpi::PINION_MPI_ABI
