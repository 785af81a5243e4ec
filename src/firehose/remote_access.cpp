#include "firehose/remote_access.h"

#include <cerrno>
#include <utility>

#include "firehose/calls.h"
#include "firehose/courier.h"
#include "firehose/inside.h"
#include "firehose/strategy.h"
#include "pinion/pinion.h"

namespace pinion::firehose {

namespace {

/// Leases the part's local memory. EAGAIN: not in a handler, where registering would block.
int lease_local(Part& part, pinion_domain* domain) {
  const unsigned access = part.kind == PartKind::put ? PINION_ACCESS_READ : PINION_ACCESS_WRITE;
  const int code = Inside::is() ? pinion_try_acquire(domain, part.local, part.bytes, access, &part.lease)
                                : pinion_acquire(domain, part.local, part.bytes, access, &part.lease);
  part.leased = code == 0;
  return code;
}

void release_local(Part& part) {
  if (part.leased) static_cast<void>(pinion_release(&part.lease));
  part.leased = false;
}

}  // namespace

void RemoteAccess::by_provider(Part& part) {
  if (post(part)) return;
  {
    const MutexLock lock(mutex_);
    waiting_.push_back(part);
    has_waiting_.store(true, std::memory_order_release);
  }
  ways_.bell.ring();
}

/// False: it has to wait for a thread that may register, or for the endpoint's queue.
bool RemoteAccess::post(Part& part) {
  transfer::Endpoint& endpoint = *ways_.endpoint;
  const int code = part.leased ? 0 : lease_local(part, endpoint.domain());
  if (code == EAGAIN && Inside::is()) return false;
  pinion_keys keys{};
  keys.size = sizeof keys;
  if (code != 0 || pinion_lease_keys(&part.lease, &keys) != 0) {
    release_local(part);
    ways_.strategy->ended(part);
    code == EFAULT ? ways_.calls->finish(part, EFAULT) : ways_.courier->by_message(part);
    return true;
  }
  const transfer::LocalMemory local{part.local, part.bytes, keys.descriptor};
  const Error error = part.kind == PartKind::put ? endpoint.put(part.peer, local, part.target, part)
                                                 : endpoint.get(part.peer, local, part.target, part);
  if (error.code == EAGAIN) return false;
  if (error) done(part, error);
  return true;
}

bool RemoteAccess::flush() {
  if (!has_waiting_.load(std::memory_order_acquire)) return true;
  Parts now;
  {
    const MutexLock lock(mutex_);
    now = std::exchange(waiting_, {});
    has_waiting_.store(false, std::memory_order_release);
  }
  while (Part* const part = now.pop_front()) {
    if (post(*part)) continue;
    now.push_front(*part);
    break;
  }
  if (now.empty()) return true;
  const MutexLock lock(mutex_);
  while (Part* const part = waiting_.pop_front()) now.push_back(*part);
  waiting_ = now;
  has_waiting_.store(true, std::memory_order_release);
  return false;
}

void Part::done(const Error& error) {
  const Inside inside;
  ways.access->done(*this, error);
}

void RemoteAccess::done(Part& part, const Error& error) {
  release_local(part);
  ways_.strategy->ended(part);
  const bool known = error.code == 0 || error.code == ECONNRESET || error.code == ECANCELED;
  ways_.calls->finish(part, known ? error.code : EIO);
}

}  // namespace pinion::firehose
