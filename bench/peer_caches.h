// Registration caches of other libraries as peers in benches: loaded late, with an empty driver, so that
// their own cost remains. Each is for one process, which opens one of them at most; calls of get_and_put()
// may overlap where the library itself is told of threads.
#pragma once

#include <memory>
#include <string>

#include "base/range.h"

namespace pinion::cli {

class PeerCache {
 public:
  virtual ~PeerCache() = default;
  /// One get and put of the range.
  virtual void get_and_put(Range range) = 0;
};

/// Null, and a reason, where UCX is absent (at build time or now).
std::unique_ptr<PeerCache> open_ucx_cache(std::string& reason);
/// The same of Open MPI's, its component grdma. `threads`: several will call.
std::unique_ptr<PeerCache> open_grdma_cache(bool threads, std::string& reason);

}  // namespace pinion::cli
