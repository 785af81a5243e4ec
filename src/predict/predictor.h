// Prediction of when each buffer is used next, from the stream of uses.
// A predictor belongs to the helper (or the simulator): one thread, never a hook, never the critical path.
// Its memory is bounded; what it forgets is learning only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/call_kind.h"
#include "base/clock.h"
#include "base/range.h"

namespace pinion {

using BufferId = std::uint32_t;  ///< the helper's number for a buffer; reused after forget()

/// One use of a buffer by a transfer.
struct Use {
  BufferId buffer = 0;
  std::uint64_t site = 0;  ///< hash of the call site's stack frames
  Address address = 0;     ///< of the transfer's buffer
  CallKind kind = CallKind::none;
  std::uint16_t thread = 0;  ///< contexts are followed per thread
  Time time = 0;             ///< when the transfer needed its registration
};

class Predictor {
 public:
  virtual ~Predictor() = default;
  virtual const char* name() const = 0;

  /// Learns from a use; uses of one thread come in order.
  virtual void observe(const Use& use) = 0;
  /// The earliest predicted use of `buffer` later than `after`; kNever when none is predicted.
  virtual Time next_use(BufferId buffer, Time after) const = 0;
  /// The buffer is gone.
  virtual void forget(BufferId buffer) = 0;
};

/// `shortest`: the paper's. Null for an unknown name (the option table has checked it).
std::unique_ptr<Predictor> make_predictor(const std::string& name, unsigned window);

}  // namespace pinion
