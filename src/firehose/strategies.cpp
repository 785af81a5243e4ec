#include <cerrno>

#include "firehose/bounce.h"
#include "firehose/caching.h"
#include "firehose/pin_everything.h"
#include "firehose/strategy.h"

namespace pinion::firehose {

Error check_strategy(const std::string& name) {
  for (const char* const known : {"firehose", "pin-everything", "rendezvous", "rendezvous-unpin", "bounce"})
    if (name == known) return {};
  return Error::make(EINVAL,
                     "there is no strategy `%s`; valid: firehose, pin-everything, rendezvous, "
                     "rendezvous-unpin, bounce",
                     name.c_str());
}

std::unique_ptr<Strategy> make_strategy(const std::string& name, Ways& ways) {
  if (name == "rendezvous") return std::make_unique<Caching>(ways, Keeps::registrations);
  if (name == "rendezvous-unpin") return std::make_unique<Caching>(ways, Keeps::nothing);
  if (name == "pin-everything") return std::make_unique<PinEverything>(ways);
  if (name == "bounce") return std::make_unique<Bounce>(ways);
  return std::make_unique<Caching>(ways, Keeps::firehoses);
}

}  // namespace pinion::firehose
