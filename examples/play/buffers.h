// The buffers of one rank: a mapping of its own for each array of the pattern, as large allocations have, or
// a block of malloc. One thread.
#pragma once

#include <vector>

#include "steps.h"

namespace play {

class Buffers {
 public:
  /// Maps the arrays of `steps` and turns all addresses in `steps` into real ones. `touched`: their pages
  /// exist from now on, else from their first use on. `heap`: they are blocks of malloc, none of which may be
  /// unmapped. Throws std::bad_alloc.
  Buffers(Steps& steps, bool touched, bool heap);
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  static void unmap(Range range);

 private:
  Range real(Range range) const;

  std::vector<Range> patterns_, mapped_;
  const bool heap_;
};

}  // namespace play
