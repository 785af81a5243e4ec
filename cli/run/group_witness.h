// Tells a signal to the process group from one to this process alone, which come with the same siginfo: a
// child that blocks all signals gets those to the group only. The kernel signals the newest of a group first,
// so the witness has a signal before its parent. One thread; the signals asked about are blocked.
#pragma once

namespace pinion::cli {

class GroupWitness {
 public:
  GroupWitness();
  ~GroupWitness();
  GroupWitness(const GroupWitness&) = delete;
  GroupWitness& operator=(const GroupWitness&) = delete;

  /// Whether the whole group was sent the signal that this process has just received; false where no witness
  /// could be started.
  bool saw(int signal);

 private:
  int asked_ = -1;  ///< the parent's end of a socket
  int child_ = -1;
};

}  // namespace pinion::cli
