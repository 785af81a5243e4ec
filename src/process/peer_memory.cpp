#include "process/peer_memory.h"

#include <cerrno>

#include "process/c_api_inside.h"
#include "process/engine.h"

namespace pinion::peer_memory {

Error hold(pinion_domain* domain, Range pages, Hold& hold) {
  ThreadContext* const thread = this_thread();
  LeasePath* const leases = LeasePath::running();
  if (!thread || !leases) return Error::make(ENOMEM, "no memory for Pinion's state of a thread");
  // All rights: local transfers from and to the memory are served by its registration, too.
  if (Error error = leases->hold(*thread, domain_number(domain), pages, Access::all, hold.region))
    return error;
  const Region& region = *hold.region.region.region;
  hold.remote_address = region.key.remote_base + (pages.begin - region.range().begin);
  hold.remote_key = region.key.remote_key;
  return {};
}

void let_go(const Hold& hold) {
  ThreadContext* const thread = this_thread();
  LeasePath* const leases = LeasePath::running();
  if (thread && leases) leases->end_hold(*thread, hold.region);
}

bool is_own_segment(Range range) {
  Engine* const engine = Engine::running();
  return engine && engine->arena().is_own(range);
}

bool is_open_segment(Range range) {
  Engine* const engine = Engine::running();
  return engine && engine->arena().is_open(range);
}

void add(Occupant& occupant) {
  if (LeasePath* const leases = LeasePath::running()) leases->budget().add(occupant);
}

void remove(Occupant& occupant) {
  if (LeasePath* const leases = LeasePath::running()) leases->budget().remove(occupant);
}

}  // namespace pinion::peer_memory
