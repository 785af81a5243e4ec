#include "support/made_up_cuda/registrations.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>

namespace pinion::made_up_cuda {
namespace {

bool overlaps_any(Range range) {
  const auto& all = world().registrations;
  const auto next = all.lower_bound(range.end);
  return next != all.begin() && std::prev(next)->second->range.overlaps(range);
}

ContextPointer context_of(const Registration& registration) {
  for (const ContextPointer& context : world().all_contexts) {
    if (context->id == registration.context) return context;
  }
  return nullptr;
}

/// Whether the real driver would pin the range for ever: 2 MiB and more of a private mapping of a file.
bool never_ends(Range range) {
  constexpr std::size_t kMost = std::size_t{2} << 20;
  if (range.bytes() < kMost) return false;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    char rights[8] = "", device[16] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %7s %*x %15s", &begin, &end, rights, device) != 4) continue;
    if (begin > range.begin || end <= range.begin) continue;
    const bool of_a_file = std::strncmp(device, "00:", 3) != 0;
    return rights[3] == 'p' && of_a_file;
  }
  return false;
}

/// Ends a registration after the copies that run now.
void end(Lock& lock, const RegistrationPointer& registration, const char* call) {
  wait(lock, call, [&] { return registration->uses == 0; });
  registration->alive = false;
  world().registrations.erase(registration->range.begin);
  Pins pins = std::move(registration->pins);
  registration->pins = {};
  lock.unlock();
  unpin(pins);
  lock.lock();
}

}  // namespace

Result register_memory(Call& call, Range range, unsigned flags, bool allocated) {
  World& w = world();
  Context& context = *call.context();
  if (!is_addressable(range.begin, range.bytes())) return kInvalidValue;
  wait(call.lock(), call.name(), [&] { return !context.held && !context.registers_held; });
  if (context.sticky) return context.sticky;
  if (overlaps_any(range)) return kAlreadyRegistered;
  const auto made = std::make_shared<Registration>();
  made->range = range;
  made->flags = flags;
  made->context = context.id;
  made->allocated = allocated;
  w.registrations[range.begin] = made;
  const bool read_only = (flags & gpu::kReadOnly) != 0;
  const auto hold = w.settings.hold_while_registering;
  if (hold.count() > 0) context.held = true;
  call.lock().unlock();
  if (read_only && never_ends(range)) hang("cuMemHostRegister of a private file mapping, which");
  Pins pins;
  const bool pinned = pin(range, read_only, pins);
  if (hold.count() > 0) std::this_thread::sleep_for(hold);
  call.lock().lock();
  if (hold.count() > 0) {
    context.held = false;
    announce();
  }
  if (!pinned) {
    made->alive = false;
    w.registrations.erase(range.begin);
    return kInvalidValue;
  }
  made->pins = std::move(pins);
  made->making = false;
  announce();
  return kSuccess;
}

Result unregister_memory(Call& call, Address base, bool allocated) {
  World& w = world();
  const auto found = w.registrations.find(base);
  if (found == w.registrations.end()) return registration_of(base) ? kInvalidValue : kNotRegistered;
  const RegistrationPointer registration = found->second;
  if (registration->making || registration->allocated != allocated)
    return allocated ? kInvalidValue : kNotRegistered;
  if (const ContextPointer context = context_of(*registration)) {
    if (context->sticky) return context->sticky;
    wait(call.lock(), call.name(), [&] { return !context->held; });
    const std::uint64_t last = context->works;
    context->held = true;
    wait(call.lock(), call.name(), [&] { return idle_up_to(*context, last); });
    context->held = false;
    announce();
  }
  if (!registration->alive) return kNotRegistered;
  if (call.sticky()) return call.sticky();
  end(call.lock(), registration, call.name());
  return kSuccess;
}

void end_registrations_of(Lock& lock, std::uint64_t context) {
  std::vector<RegistrationPointer> ending;
  for (const auto& [begin, registration] : world().registrations) {
    if (registration->context == context && !registration->making) ending.push_back(registration);
  }
  for (const RegistrationPointer& registration : ending) {
    if (registration->alive) end(lock, registration, "the end of a context");
    if (registration->allocated)
      ::munmap(reinterpret_cast<void*>(registration->range.begin), registration->range.bytes());
  }
}

RegistrationPointer registration_of(Address address) {
  const auto& all = world().registrations;
  const auto next = all.upper_bound(address);
  if (next == all.begin()) return nullptr;
  const RegistrationPointer& last = std::prev(next)->second;
  return address < last->range.end && !last->making ? last : nullptr;
}

Result classify(Range range, RegistrationPointer& found) {
  found = registration_of(range.begin);
  return found && !found->range.contains(range) ? kInvalidValue : kSuccess;
}

}  // namespace pinion::made_up_cuda
