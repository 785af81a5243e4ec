#include "intercept/cuda/ring.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "base/range.h"
#include "base/warning.h"
#include "device/cuda/host_ranges.h"
#include "device/kernel/memory_policy.h"
#include "intercept/cuda/kept.h"
#include "intercept/cuda/submission_gate.h"

namespace pinion::cuda {

namespace {

using namespace staging;

constexpr std::size_t kHugepage = 2 * kMiB;

/// Asks for the current context's device; -1: unknown.
int numa_node(const Driver& driver) {
  Ordinal device = 0;
  int node = -1;
  if (driver.device_attribute == nullptr || driver.context_device(&device) != kSuccess ||
      driver.device_attribute(&node, kAttributeHostNumaNode, device) != kSuccess)
    return -1;
  return node;
}

/// Null: there is none to be had.
char* map_ring(const Driver& driver) {
  void* const mapped =
      ::mmap(nullptr, kRingBytes + kHugepage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<Address>(mapped);
  const Address aligned = (begin + kHugepage - 1) & ~Address{kHugepage - 1};
  if (aligned != begin) ::munmap(mapped, aligned - begin);
  if (const std::size_t rest = begin + kHugepage - aligned; rest != 0)
    ::munmap(reinterpret_cast<void*>(aligned + kRingBytes), rest);
  auto* const ring = reinterpret_cast<char*>(aligned);
  ::madvise(ring, kRingBytes, MADV_HUGEPAGE);
  ::madvise(ring, kRingBytes, MADV_DONTFORK);
  prefer_node(Range::of(ring, kRingBytes), numa_node(driver));
  host_ranges().add_own(Range::of(ring, kRingBytes));
  return ring;
}

std::uint32_t bits(std::size_t first, std::size_t slots) {
  return static_cast<std::uint32_t>(((std::uint64_t{1} << slots) - 1) << first);
}

/// The first of the longest runs of free slots.
struct Run {
  std::size_t first = 0, slots = 0;
};
Run longest_free(std::uint32_t used) {
  Run longest;
  Run run;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    run = (used >> slot & 1) != 0 ? Run{slot + 1, 0} : Run{run.first, run.slots + 1};
    if (run.slots > longest.slots) longest = run;
  }
  return longest;
}

}  // namespace

// ---- a part ----

PinnedRings::Part::Part(PinnedRings& rings, const Driver& driver, const ContextKey& key, std::size_t bytes)
    : Part(rings) {
  take(driver, key, bytes);
}

void PinnedRings::Part::take(const Driver& driver, const ContextKey& key, std::size_t bytes) {
  Ring* ring = nullptr;
  {
    const MutexLock lock(rings_.mutex_);
    ring = rings_.ring_of(key);
    if (ring == nullptr) return;
    if (!rings_.wants_preparing(*ring, key)) {
      if (ring->state == State::ready && rings_.give(*ring, bytes, *this)) ring_ = ring;
      return;
    }
  }
  preparing_ = ring;
  const Prepared prepared = prepare(*ring, driver);
  preparing_ = nullptr;
  rings_.note(*ring, prepared);
  const MutexLock lock(rings_.mutex_);
  if (ring->state == State::ready && ring->key == key && rings_.give(*ring, bytes, *this)) ring_ = ring;
}

PinnedRings::Part::~Part() {
  if (preparing_ != nullptr) rings_.note(*preparing_, Prepared::later);
  if (ring_ == nullptr) return;
  const MutexLock lock(rings_.mutex_);
  ring_->used &= ~bits(first_, slots_);
  if (ring_->used != 0 || !ring_->outdated) return;
  ring_->outdated = false;
  ring_->state = State::stale;
}

char* PinnedRings::Part::memory(std::size_t offset) const {
  return ring_->memory + first_ * kSlotBytes + offset;
}

Event PinnedRings::Part::event(std::size_t offset) const {
  return ring_->events[(first_ * kSlotBytes + offset) / kLeastPiece];
}

// ---- the table ----

PinnedRings::Ring* PinnedRings::ring_of(const ContextKey& key) {
  // Memory that another context may still have registered is the last choice.
  const auto rank = [](const Ring& ring) {
    if (ring.state == State::stale) return ring.registered_by == ContextKey{} ? 3 : 1;
    return ring.state == State::unused ? 2 : 0;
  };
  Ring* best = nullptr;
  for (Ring& ring : rings_) {
    if (ring.state != State::unused && ring.key == key) return &ring;
    if (rank(ring) > (best == nullptr ? 0 : rank(*best))) best = &ring;
  }
  return best;
}

bool PinnedRings::wants_preparing(Ring& ring, const ContextKey& key) {
  if (ring.state != State::unused && ring.state != State::stale) return false;
  if (ring.key == key && ring.left_alone != 0) {
    --ring.left_alone;
    return false;
  }
  if (!(ring.key == key)) ring.refusals = ring.left_alone = 0;
  ring.state = State::preparing;
  ring.outdated = false;
  ring.key = key;
  return true;
}

PinnedRings::Prepared PinnedRings::prepare(Ring& ring, const Driver& driver) {
  const Kept<SubmissionGate::Exclusive> everything(submission_gate(), driver, ring.key.context);
  if (!everything->held()) return Prepared::later;
  const Kept<RelaxedCapture> relaxed(driver);
  const Result registered = register_memory(ring, driver);
  // Its context was not the one that changed.
  if (registered == kAlreadyRegistered) return Prepared::yes;
  if (registered != kSuccess) {
    warn("copies are not staged: the driver does not register %zu MiB (cuMemHostRegister: error %d)",
         kRingBytes / kMiB, registered);
    return Prepared::never;
  }
  for (std::size_t i = 0; i < kEvents; ++i) {
    if (driver.event_create(&ring.events[i], kEventBlocking | kEventNoTiming) == kSuccess) continue;
    while (i-- > 0) driver.event_destroy(ring.events[i]);
    ring.registered_by = {};  // it is without events
    return Prepared::never;
  }
  return Prepared::yes;
}

Result PinnedRings::register_memory(Ring& ring, const Driver& driver) {
  for (;;) {
    if (ring.memory == nullptr) ring.memory = map_ring(driver);
    if (ring.memory == nullptr) return kOutOfMemory;
    const Result registered = driver.host_register(ring.memory, kRingBytes, kRegisterPortable);
    if (registered == kAlreadyRegistered && !(ring.registered_by == ring.key)) {
      // It holds in a context that may end at any time, which keeps the memory.
      ring.memory = nullptr;
      continue;
    }
    if (registered == kSuccess) ring.registered_by = ring.key;
    return registered;
  }
}

void PinnedRings::note(Ring& ring, Prepared prepared) {
  constexpr unsigned kMostLeftAlone = 1024;
  const MutexLock lock(mutex_);
  switch (prepared) {
    case Prepared::yes:
      ring.state = State::ready;
      break;
    case Prepared::later:
      ring.state = State::stale;
      ring.left_alone = std::min(1U << std::min(ring.refusals++, 10U), kMostLeftAlone);
      break;
    case Prepared::never:
      ring.state = State::refused;
      break;
  }
  if (ring.outdated) ring.state = State::stale;
  ring.outdated = false;
}

bool PinnedRings::give(Ring& ring, std::size_t bytes, Part& part) {
  if (ring.outdated) return false;
  const std::size_t wanted = (bytes + kSlotBytes - 1) / kSlotBytes;
  const Run run = longest_free(ring.used);
  // Whoever comes later finds some as well.
  const std::size_t share = ring.used == 0 ? kMostSlots : std::max(kLeastSlots, run.slots / 2);
  const std::size_t slots = std::min({wanted, run.slots, share});
  if (slots < std::min(wanted, kLeastSlots)) return false;
  part.first_ = run.first;
  part.slots_ = slots;
  ring.used |= bits(run.first, slots);
  return true;
}

void PinnedRings::contexts_changed(unsigned long long id) {
  const MutexLock lock(mutex_);
  for (Ring& ring : rings_) {
    if (ring.state == State::unused || (id != 0 && ring.key.id != 0 && ring.key.id != id)) continue;
    if (ring.state == State::preparing || ring.used != 0) {
      ring.outdated = true;
    } else {
      ring.state = State::stale;
      if (id != 0 && ring.registered_by.id == id) ring.registered_by = {};
    }
    ring.refusals = ring.left_alone = 0;
  }
}

void PinnedRings::abandon_after_fork() NO_THREAD_SAFETY_ANALYSIS {
  mutex_.free_in_child();
  rings_ = {};
}

PinnedRings& pinned_rings() {
  alignas(PinnedRings) static unsigned char memory[sizeof(PinnedRings)];
  static PinnedRings* const rings = new (memory) PinnedRings;
  return *rings;
}

}  // namespace pinion::cuda
