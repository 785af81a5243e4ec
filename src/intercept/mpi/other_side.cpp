#include "intercept/mpi/other_side.h"

namespace pinion::mpi::PINION_MPI_ABI {

bool OtherSide::is_near(HandleQuestions& questions, int other) const {
  switch (group_) {
    case Group::communicator:
      if (!may_ask(questions, comm_)) return true;
      return other == kAll ? all_on_this_node(comm_) : on_this_node(comm_, other);
    case Group::window:
      if (win_ == library().win_null || !questions.may_ask(KnownHandles::windows(), key_of(win_)))
        return true;
      return peer_ >= 0 ? target_on_this_node(win_, peer_) : all_targets_on_this_node(win_);
    case Group::none:
      break;
  }
  return false;
}

}  // namespace pinion::mpi::PINION_MPI_ABI
