// The paper's predictor (section 4.2): a hash table of call sites in context; each entry keeps the time of
// its last use and the shortest interval ever seen between two of its uses. A buffer's next use is the
// earliest "last use + shortest interval" of the entries that use it.
#pragma once

#include <unordered_map>
#include <vector>

#include "predict/context.h"
#include "predict/predictor.h"

namespace pinion {

class ShortestPredictor final : public Predictor {
 public:
  explicit ShortestPredictor(unsigned window) : context_(window) {}

  const char* name() const override { return "shortest"; }
  Observed observe(const Use& use) override;
  Time next_use(BufferId buffer, Time after) const override;
  void forget(BufferId buffer) override;

  std::size_t entries() const { return entries_.size(); }

 private:
  void learn(const Use& use);
  struct Entry {
    Time last = 0;
    Duration period = 0;  ///< shortest interval; 0: used once only
  };
  // A buffer that was used in more contexts than this forgets the one used longest ago.
  static constexpr std::size_t kContextsPerBuffer = 32;

  ContextWindow context_;
  std::unordered_map<Signature, Entry> entries_;
  std::vector<std::vector<Signature>> contexts_of_;  // by buffer
};

}  // namespace pinion
