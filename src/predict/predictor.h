// Prediction of when each buffer is used next, from the stream of uses; and the options that choose it.
// A predictor belongs to the helper (or the simulator): one thread, outside of hooks and of the critical
// path. Its memory is bounded; forgetting costs only learning.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/call_kind.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "base/range.h"

namespace pinion {

/// Returns the value of that number, which may be the highest so far: then those up to it are new.
template <class T>
T& grown(std::vector<T>& values, std::size_t number) {
  if (number >= values.size()) values.resize(number + 1);
  return values[number];
}
template <class T>
T& grown(std::vector<T>& values, std::size_t number, const T& fresh) {
  if (number >= values.size()) values.resize(number + 1, fresh);
  return values[number];
}

using BufferId = std::uint32_t;  ///< the helper's number for a buffer; reused after forget()

/// One use of a buffer by a transfer. A use is known at its end; uses that overlap in time may come in any
/// order.
struct Use {
  BufferId buffer = 0;
  std::uint64_t site = 0;  ///< names the call site's stack frames
  Address address = 0;     ///< of the transfer's buffer
  CallKind kind = CallKind::none;
  std::uint16_t thread = 0;  ///< contexts are followed per thread
  Time time = 0;             ///< when the transfer needed its registration
  Time end = 0;              ///< when it was over
  std::size_t pages = 1;
  /// It began while another transfer of the buffer was under way (one send buffer, several peers): the same
  /// use, as far as registration is concerned.
  bool continues = false;
  /// The time before the use until which a prediction of it can be acted upon.
  Duration lead = 0;
  Time last = 0;  ///< the buffer's use before, on the time line of `time`
  /// Already taken out of both times: how long its thread had waited for registration by then.
  Duration delayed = 0;
};

/// The predictions of a use and of the one after it.
struct Observed {
  /// The predicted time of this use, by the uses that were over `lead` before it: for the score. Set only for
  /// a use that begins anew, after another use of its buffer.
  Time foreseen = kNever;
  Time next = kNever;  ///< next_use() after it
};

/// The prediction of a buffer's next use.
struct Estimate {
  Time time = kNever;   ///< when; kNever: unpredicted
  Time early = kNever;  ///< when to be ready for it, at the caller's price
  double risk = 0;      ///< probability that the use comes before `early`
  double reuse = 0;     ///< estimated probability that the buffer is used again at all
  Time until = 0;  ///< what holds after one time holds after any later one before this, until the next use
};

class Predictor {
 public:
  virtual ~Predictor() = default;
  virtual const char* name() const = 0;

  /// Learns from a use. All answers change here, and those about a buffer in forget(), and nowhere else:
  /// callers keep them in between.
  virtual Observed observe(const Use& use) = 0;
  /// The buffer is gone.
  virtual void forget(BufferId buffer) = 0;

  /// The earliest predicted use of `buffer` later than `after`; kNever when its uses are unpredicted.
  virtual Time next_use(BufferId buffer, Time after) const = 0;
  /// Returns the next use with its sureness. `worth`: being ready this much too soon is as bad as one use
  /// before the buffer is ready. `early` makes the sum of both least, by the recent errors.
  virtual Estimate estimate(BufferId buffer, Time after, Duration worth) const;

  // A predictor that follows the program re-anchors its predictions at every use. A caller that has planned
  // by them learns here which of them the last observe() has moved.

  /// Predictions may have become earlier by so much. (Later ones are found when their time has come.)
  virtual Duration sooner() const { return 0; }
  /// These buffers' next uses were predicted anew.
  virtual const std::vector<BufferId>& moved() const;

  /// Returns whether uses that follow each other too fast for any decision may be given as a sample of one in
  /// so many.
  virtual bool samples_runs() const { return false; }

  /// The learnt profile, for later runs of the same program (prediction-and-retention.md). By default empty
  /// and ignored.
  virtual std::string profile() const { return {}; }
  virtual Error load_profile(const std::string&) { return {}; }
};

/// `shortest`: the paper's; `periodicity`: Freitag et al.'s; `adaptive`: ours. Null for an unknown name (the
/// option table has checked it). `window`: of `shortest`; `period_window`: of `periodicity`.
std::unique_ptr<Predictor> make_predictor(const std::string& name, unsigned window, unsigned period_window);

/// The options of prediction. Filled before threads start, then only read.
struct PredictOptions {
  std::string predictor = "adaptive";
  std::uint64_t window = 2;
  /// The best of the powers of two on NAS benchmarks (helper-threads.md).
  std::uint64_t period_window = 4;
  std::string profile;
};

OptionTable<PredictOptions> predict_options();

}  // namespace pinion
