// UCX's registration cache as a peer in benches: loaded late, with an empty driver, so that its own cost
// remains.
#pragma once

#include <memory>
#include <string>

#include "base/range.h"

namespace pinion::cli {

class UcxCache {
 public:
  /// Null, and a reason, where UCX is absent (at build time or now).
  static std::unique_ptr<UcxCache> open(std::string& reason);
  virtual ~UcxCache() = default;
  /// One get and put of the range.
  virtual void get_and_put(Range range) = 0;
};

}  // namespace pinion::cli
