#include "firehose/pin_everything.h"

#include <cerrno>
#include <cstring>

#include "engine/c_api_inside.h"
#include "firehose/courier.h"
#include "firehose/outbox.h"
#include "firehose/remote_access.h"

namespace pinion::firehose {

namespace {

/// One segment's key. All of a process's segments follow each other.
struct KeyMessage {
  std::uint64_t segments;
  RemotePart part;
};

constexpr std::uint64_t kMostSegments = 4096;

}  // namespace

PinEverything::PinEverything(Ways& ways)
    : ways_(ways), keys_(std::make_unique<Keys[]>(ways.endpoint->peers())) {}

Error PinEverything::pin(Range pages, RemotePart& part) {
  ThreadContext* const thread = this_thread();
  LeasePath* const leases = LeasePath::running();
  if (!thread || !leases) return Error::make(ENOMEM, "no memory for Pinion's state of a thread");
  PeerHold hold;
  const int domain = domain_number(ways_.endpoint->domain());
  if (Error error = leases->peer_holds().begin(*thread, domain, pages, Access::all, hold)) return error;
  holds_.push_back(hold);
  bytes_.fetch_add(pages.bytes());
  pins_.fetch_add(1);
  const Region& region = *hold.region.region;
  part = {pages.begin, pages.end, region.key.remote_base + (pages.begin - region.range().begin),
          region.key.remote_key};
  return {};
}

Error PinEverything::open() {
  const pinion_firehose_options& options = ways_.options;
  if (options.segment_count == 0 || options.segment_count > kMostSegments)
    return Error::make(EINVAL, "strategy `pin-everything` needs segments, %llu at most",
                       static_cast<unsigned long long>(kMostSegments));
  const transfer::Endpoint& endpoint = *ways_.endpoint;
  for (std::size_t i = 0; i < options.segment_count; ++i) {
    KeyMessage message{options.segment_count, {}};
    const Range segment = Range::of(options.segments[i].address, options.segments[i].bytes);
    const Range pages{page_ceil(segment.begin), page_floor(segment.end)};
    if (Error error = pages.empty() ? Error{} : pin(pages, message.part)) {
      close();
      return error;
    }
    for (Peer peer = 0; peer < endpoint.peers(); ++peer)
      if (peer != endpoint.self())
        static_cast<void>(ways_.outbox->send(peer, kControlMessage, &message, sizeof message));
  }
  return {};
}

void PinEverything::close() {
  ThreadContext* const thread = this_thread();
  LeasePath* const leases = LeasePath::running();
  if (!thread || !leases) return;
  for (const PeerHold& hold : holds_) leases->peer_holds().end(*thread, hold);
  holds_.clear();
}

void PinEverything::message(Peer from, const void* payload, std::size_t bytes) {
  KeyMessage message;
  if (bytes != sizeof message) return;
  std::memcpy(&message, payload, sizeof message);
  Keys& keys = keys_[from];
  const std::lock_guard lock(mutex_);
  if (keys.complete.load(std::memory_order_relaxed) || message.segments > kMostSegments) return;
  keys.parts.push_back(message.part);
  if (keys.parts.size() >= message.segments) keys.complete.store(true, std::memory_order_release);
}

void PinEverything::begin(Part& part) {
  const Keys& keys = keys_[part.peer];
  // Before that the peer has not opened.
  if (!keys.complete.load(std::memory_order_acquire)) return ways_.courier->by_message(part);
  for (const RemotePart& remote : keys.parts) {
    if (!Range{remote.begin, remote.end}.contains({part.remote, part.remote + part.bytes})) continue;
    hits_.fetch_add(1, std::memory_order_relaxed);
    part.target = {remote.address + (part.remote - remote.begin), remote.key};
    return ways_.access->by_provider(part);
  }
  // The edges of segments, which share their pages with other memory; or unexposed.
  ways_.courier->by_message(part);
}

void PinEverything::add_to(struct pinion_firehose_statistics& out) const {
  out.hits = hits_.load(std::memory_order_relaxed);
  out.pins = pins_.load(std::memory_order_relaxed);
  out.exposed_bytes = out.exposed_peak_bytes = bytes_.load(std::memory_order_relaxed);
}

}  // namespace pinion::firehose
