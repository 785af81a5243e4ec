// The other side of a call: the communicator or window that it is made on, and the rank there. Decides
// whether all of it is on this node, where transfers need no registration (option intranode). A value in the
// wrapper's frame; any thread that may call MPI.
#pragma once

#include "intercept/mpi/groups.h"
#include "intercept/mpi/known_handles.h"
#include "intercept/mpi/library.h"

namespace pinion::mpi::PINION_MPI_ABI {

class OtherSide {
 public:
  static constexpr int kAll = -1000;  ///< instead of a rank: the other side is everybody of the group

  void among(Comm comm, int peer) {
    comm_ = comm;
    group_ = Group::communicator;
    peer_ = peer;
  }
  void toward(Win win, int target) {
    win_ = win;
    group_ = Group::window;
    peer_ = target;
  }
  /// The rank that enters the log.
  int peer() const { return peer_; }
  int peer(int other) const { return other == kAll ? peer_ : other; }

  static bool may_ask(HandleQuestions& questions, Comm comm) {
    if (comm == library().comm_world) return true;
    return comm != library().comm_null && questions.may_ask(KnownHandles::communicators(), key_of(comm));
  }
  /// True where transfers with `other`, a rank or kAll, stay on this node, or that is unknown as yet.
  bool is_left_out(HandleQuestions& questions, int other) const {
    return node_is_known() && is_near(questions, other);
  }

 private:
  bool is_near(HandleQuestions& questions, int other) const;

  enum class Group : std::uint8_t { none, communicator, window };

  Group group_ = Group::none;
  int peer_ = -1;
  union {
    Comm comm_;
    Win win_;
  };
};

}  // namespace pinion::mpi::PINION_MPI_ABI
