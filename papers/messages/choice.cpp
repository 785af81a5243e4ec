#include "papers/messages/choice.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "lease/copy_speed.h"

namespace pinion::transfer {

RecentBuffers::Entry& RecentBuffers::entry_of(const void* address, std::size_t bytes) {
  const std::uint64_t mixed =
      (reinterpret_cast<std::uint64_t>(address) ^ (bytes << 1)) * 0x9E37'79B9'7F4A'7C15u;
  return entries_[(mixed >> 32) % entries_.size()];
}

int RecentBuffers::missed(const void* address, std::size_t bytes) {
  const MutexLock lock(mutex_);
  Entry& entry = entry_of(address, bytes);
  if (entry.address != address || entry.bytes != bytes) {
    entry = {address, bytes, 1};
    return -1;
  }
  return entry.misses < kMostMisses ? entry.misses++ : entry.misses;
}

void RecentBuffers::found(const void* address, std::size_t bytes) {
  const MutexLock lock(mutex_);
  Entry& entry = entry_of(address, bytes);
  if (entry.address == address && entry.bytes == bytes) entry.misses = 0;
}

namespace {

/// Whether the buffer's registrations go on behind its first part. A neighbour's registered page is no begin.
bool goes_on(Buffer& buffer, const Part& first) {
  if (first.bytes >= buffer.options().chunk_bytes) return true;
  Part next;
  if (!buffer.lease_registered(first.bytes, next)) return false;
  buffer.give_back(next);
  return true;
}

Protocol chosen(Buffer& buffer, RecentBuffers& recent) {
  const MessageOptions& options = buffer.options();
  if (options.protocol != Protocol::automatic)
    return options.protocol == Protocol::pipeline && buffer.bytes() < options.pipeline_from
               ? Protocol::bounce
               : options.protocol;
  Part part;
  if (buffer.lease_registered(0, part)) {
    buffer.at_hand = part;
    const bool whole = part.bytes == buffer.bytes();
    if (whole) recent.found(buffer.address(), buffer.bytes());
    if (whole || (buffer.bytes() >= options.bounce_below && goes_on(buffer, part)))
      return whole ? Protocol::rendezvous : Protocol::prepared;
    buffer.give_back(*buffer.at_hand);
    buffer.at_hand.reset();
  }
  if (buffer.bytes() < options.bounce_below) return Protocol::bounce;
  const int misses = recent.missed(buffer.address(), buffer.bytes());
  // A buffer that comes again is leased whole, so that retention learns it as one.
  if (misses >= 0 && misses < kMostMisses) return Protocol::rendezvous;
  return buffer.bytes() < options.pipeline_from ? Protocol::rendezvous : Protocol::pipeline;
}

}  // namespace

void choose(Buffer& buffer, RecentBuffers& recent) {
  buffer.protocol = buffer.bytes() == 0 ? Protocol::bounce : chosen(buffer, recent);
}

namespace {

/// Time to register fresh memory and let it go again; kNever: it is refused.
Duration registration_time(pinion_domain* domain, std::size_t bytes) {
  Duration best = kNever;
  for (int i = 0; i < 3; ++i) {
    // Fresh each time, as retention may keep the last one registered.
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return best;
    std::memset(memory, 1, bytes);
    pinion_lease lease;
    const Time begin = monotonic_now();
    if (pinion_acquire(domain, memory, bytes, PINION_ACCESS_REMOTE_READ, &lease) == 0 &&
        pinion_release(&lease) == 0)
      best = std::min(best, monotonic_now() - begin);
    ::munmap(memory, bytes);
  }
  return best;
}

}  // namespace

std::size_t measure_bounce_below(pinion_domain* domain, std::size_t at_most) {
  constexpr std::size_t kSmall = std::size_t{64} << 10;
  constexpr std::size_t kLarge = std::size_t{1} << 20;
  constexpr std::size_t kLeast = 4096;
  const Duration small = registration_time(domain, kSmall);
  const Duration large = registration_time(domain, kLarge);
  if (small == kNever || large == kNever) return at_most;
  const double a_byte = static_cast<double>(large - small) / static_cast<double>(kLarge - kSmall);
  const double constant = static_cast<double>(small) - a_byte * static_cast<double>(kSmall);
  const double saved_a_byte = 1 / measure_copy_speed() - a_byte;
  if (saved_a_byte <= 0) return at_most;
  const double from = std::min(constant / saved_a_byte, static_cast<double>(at_most));
  return std::max(kLeast, static_cast<std::size_t>(std::max(from, 0.0)));
}

}  // namespace pinion::transfer
