// The other ranks of a process's job, as its thread sees them. The job implements it; one thread.
#pragma once

namespace pinion::simulate {

class Peers {
 public:
  virtual ~Peers() = default;
  /// Begins the next messages of this rank. Returns whether a peer goes on now that had waited for one.
  virtual bool begin(unsigned messages) = 0;
  /// Returns whether the peers have begun their parts of all messages under way. Where they have not,
  /// Process::peers_came() follows.
  virtual bool met() = 0;
};

}  // namespace pinion::simulate
