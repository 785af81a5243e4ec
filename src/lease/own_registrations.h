// Registrations that the program makes without Pinion. They count against the limits, from before they are
// made until they have ended: idle regions go for them, as far as there are any.
//
// Owns nothing; the budget keeps the count. Ordinary code of any thread.
#pragma once

#include <cstdint>

#include "lease/thread_retirement.h"

namespace pinion {

class OwnRegistrations {
 public:
  OwnRegistrations(DomainTable& domains, ThreadRetirement& retirement)
      : domains_(domains), retirement_(retirement) {}

  void begin(ThreadContext& thread, std::uint64_t bytes);
  void end(std::uint64_t bytes);

 private:
  DomainTable& domains_;
  ThreadRetirement& retirement_;
};

}  // namespace pinion
