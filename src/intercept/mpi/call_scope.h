// What every wrapper begins with: is Pinion to look at this call, and if so, which buffers does it carry.
// Objects live in the wrapper's frame; one thread.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <array>
#include <vector>

#include "engine/engine.h"
#include "intercept/exports.h"
#include "intercept/mpi/requests.h"
#include "predict/unwind.h"

namespace pinion::mpi {

/// The MPI library's own functions that the front itself needs, found once. They are never intercepted ones.
struct Library {
  int (*type_size)(MPI_Datatype, int*);
  int (*type_extent)(MPI_Datatype, MPI_Aint*, MPI_Aint*);
  int (*type_true_extent)(MPI_Datatype, MPI_Aint*, MPI_Aint*);
  int (*comm_size)(MPI_Comm, int*);
  int (*comm_rank)(MPI_Comm, int*);
  int (*comm_test_inter)(MPI_Comm, int*);
  int (*comm_remote_size)(MPI_Comm, int*);
  MPI_Request request_null;
  static const Library& get();
};

/// MPI_X and PMPI_X are both intercepted, and an MPI may call one from the other: only the outermost call of
/// a thread is looked at (in Fortran programs under Open MPI, that is PMPI_X).
class CallScope {
 public:
  CallScope() {
    Engine* engine = Engine::running();
    if (!engine) return;
    thread_ = this_thread();
    if (!thread_ || thread_->depth++ != 0) return;
    engine_ = engine;
  }
  ~CallScope() {
    if (thread_) --thread_->depth;
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

  bool watched() const { return engine_ != nullptr; }
  Engine& engine() const { return *engine_; }
  ThreadContext& thread() const { return *thread_; }

 private:
  Engine* engine_ = nullptr;
  ThreadContext* thread_ = nullptr;
};

/// The buffers of one call: each that reaches the threshold is leased when it is named and released at the
/// end of the call, or moved to a request.
class Buffers {
 public:
  Buffers(CallScope& scope, const EntryFrame& entry, CallKind kind, int peer)
      : scope_(scope), entry_(entry), kind_(kind), peer_(peer) {}
  ~Buffers() {
    for (std::size_t i = 0; i < count_; ++i) scope_.engine().release(scope_.thread(), slots_[i].transfer);
    for (Transfer& transfer : more_) scope_.engine().release(scope_.thread(), transfer);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  void reads(const void* buffer, MPI_Aint count, MPI_Datatype type) {
    add(buffer, count, type, Access::read);
  }
  void writes(void* buffer, MPI_Aint count, MPI_Datatype type) { add(buffer, count, type, Access::write); }
  /// The blocks that counts and displacements (in units of the type's extent) describe: as one range, or
  /// where they lie far apart, each for itself.
  void reads_blocks(const void* buffer, const int* counts, const int* displacements, int blocks,
                    MPI_Datatype type) {
    add_blocks(buffer, counts, displacements, blocks, type, Access::read);
  }
  void writes_blocks(void* buffer, const int* counts, const int* displacements, int blocks,
                     MPI_Datatype type) {
    add_blocks(buffer, counts, displacements, blocks, type, Access::write);
  }

  /// A range that is known already (a persistent request's).
  void uses(Range range, Access access);

  /// The bytes that a call touches; empty below the threshold, and for scattered data.
  static Range span(const Engine& engine, const void* buffer, MPI_Aint count, MPI_Datatype type);

  /// Moves the (one) lease of a nonblocking operation to its request.
  void hand_over_to(MPI_Request request) {
    if (count_ == 0) return;
    Requests::instance().hold(request, slots_[0].transfer);
    count_ = 0;
  }

 private:
  /// Made when a buffer reaches the threshold: small messages do not pay for it.
  union Slot {
    Slot() {}
    Transfer transfer;
  };

  void add(const void* buffer, MPI_Aint count, MPI_Datatype type, Access access) {
    const Range range = span(scope_.engine(), buffer, count, type);
    if (!range.empty()) uses(range, access);
  }
  void add_blocks(const void* buffer, const int* counts, const int* displacements, int blocks,
                  MPI_Datatype type, Access access);

  CallScope& scope_;
  const EntryFrame& entry_;
  const CallKind kind_;
  const int peer_;
  CallPoint point_;
  std::size_t count_ = 0;
  std::array<Slot, 2> slots_;   ///< what a call sends and what it receives
  std::vector<Transfer> more_;  ///< of blocks that lie far apart
};

/// Processes that take part on the other side of a collective: the remote group of an intercommunicator.
int group_size(MPI_Comm comm);
/// Processes on this side.
int local_size(MPI_Comm comm);
int own_rank(MPI_Comm comm);
inline MPI_Aint sum_of(const int* counts, int n) {
  MPI_Aint sum = 0;
  for (int i = 0; i < n; ++i) sum += counts[i];
  return sum;
}
/// Whether this process is the root of a rooted collective.
bool is_root(MPI_Comm comm, int root);

}  // namespace pinion::mpi
