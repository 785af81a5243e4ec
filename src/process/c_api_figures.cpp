// The C API's figures: limits in force, and counters. Owns nothing. Any ordinary thread.
#include "pinion/pinion.h"
#include "process/c_api_inside.h"
#include "process/engine.h"

using namespace pinion;

int pinion_limits(struct pinion_limits* limits) {
  if (!is_sized(limits)) return bad_struct("pinion_limits", limits);
  Engine* engine = Engine::running();
  if (!engine) return not_running("pinion_limits", nullptr);
  const Budget& budget = engine->budget();
  return fill(limits, {.size = 0,
                       .bytes = budget.limits().bytes,
                       .regions = budget.limits().regions,
                       .bytes_in_use = budget.bytes(),
                       .regions_in_use = budget.regions(),
                       .bytes_from = budget.limits().bytes_from.c_str()});
}

int pinion_statistics(const pinion_domain* domain, struct pinion_statistics* statistics) {
  if (!is_sized(statistics)) return bad_struct("pinion_statistics", statistics);
  Engine* engine = Engine::running();
  if (!engine || (domain && domain->engine != engine)) return not_running("pinion_statistics", domain);
  runlog::Counters now, before{};
  std::uint64_t ahead = 0;
  if (domain) {
    now = engine->counters().of(domain->number);
    before = domain->before;
    ahead = engine->counters().registrations_ahead(domain->number) - domain->ahead_before;
  } else {
    now = engine->counters().all();
    for (int i = 0; i < engine->domains().count(); ++i) ahead += engine->counters().registrations_ahead(i);
  }
  return fill(statistics, {.size = 0,
                           .acquires = now.acquires - before.acquires,
                           .hits = now.hits - before.hits,
                           .waits = now.waits - before.waits,
                           .misses = now.misses - before.misses,
                           .bounced = now.bounced - before.bounced,
                           .observed = now.observed - before.observed,
                           .acquired_bytes = now.acquired_bytes - before.acquired_bytes,
                           .bounced_bytes = now.bounced_bytes - before.bounced_bytes,
                           .registrations = now.registrations - before.registrations,
                           .registrations_ahead = ahead,
                           .deregistrations = now.deregistrations - before.deregistrations,
                           .registration_failures = now.registration_failures - before.registration_failures,
                           .registered_bytes = now.registered_now_bytes,
                           .registered_peak_bytes = now.registered_peak_bytes,
                           .regions = now.regions_now,
                           .registration_ns = now.registration_ns - before.registration_ns,
                           .wait_ns = now.wait_ns - before.wait_ns});
}
