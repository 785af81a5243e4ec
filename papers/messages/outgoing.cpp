// The sender's half of a channel.
#include <algorithm>

#include "papers/messages/channel.h"
#include "papers/messages/protocols.h"

namespace pinion::transfer {

void Channel::send(std::unique_ptr<Outgoing> message) {
  const auto at = outgoing_.emplace(next_outgoing_++, std::move(message)).first;
  if (failed_) finish(at, failed_);
}

void Channel::announce_more() {
  for (auto at = outgoing_.lower_bound(next_announce_);
       at != outgoing_.end() && outgoing_announced_ < kMostAnnounced; ++at) {
    Outgoing& message = *at->second;
    Control control{.kind = ControlKind::announce, .message = at->first, .total = message.buffer.bytes()};
    Part part;
    if (control.total > 0 && next_part(message.buffer, 0, message.buffer.bytes(), part)) {
      message.parts.push_back(part);
      message.offered = part.bytes;
      control.bytes = part.bytes;
      control.source = part.remote;
    }
    message.announced = true;
    next_announce_ = at->first + 1;
    ++outgoing_announced_;
    queue(control);
  }
}

void Channel::offer_more(std::uint64_t number, Outgoing& message) {
  const std::size_t depth = std::clamp<std::size_t>(context_.options.depth, 1, kMostSegments);
  while (message.offered < message.buffer.bytes() && message.parts.size() < depth) {
    Part part;
    if (!next_part(message.buffer, message.offered, message.buffer.rest(message.offered), part)) return;
    message.parts.push_back(part);
    message.offered += part.bytes;
    queue({.kind = ControlKind::segment,
           .message = number,
           .offset = part.offset,
           .bytes = part.bytes,
           .source = part.remote});
    // The wire works on this part while the next one is registered.
    flush();
  }
}

bool Channel::accepted(const Control& control) {
  const auto at = outgoing_.find(control.message);
  if (at == outgoing_.end() || !at->second->announced || at->second->buffer.accepted) return false;
  at->second->buffer.accepted = true;
  if (at->second->buffer.bytes() == 0) finish(at, {});
  return true;
}

bool Channel::pulled(const Control& control) {
  const auto at = outgoing_.find(control.message);
  if (at == outgoing_.end()) return false;
  Outgoing& message = *at->second;
  const auto part = std::find_if(message.parts.begin(), message.parts.end(), [&](const Part& p) {
    return p.offset == control.offset && p.bytes == control.bytes;
  });
  if (part == message.parts.end()) return false;
  message.buffer.give_back(*part);
  message.pulled += part->bytes;
  message.parts.erase(part);
  if (message.pulled == message.buffer.bytes()) finish(at, {});
  return true;
}

bool Channel::refused(const Control& control) {
  const auto at = outgoing_.find(control.message);
  if (at == outgoing_.end() || !at->second->announced) return false;
  finish(at, control.code == EMSGSIZE
                 ? Error::make(EMSGSIZE, "the message of %zu bytes is longer than the peer's receive",
                               at->second->buffer.bytes())
                 : Error::make(control.code, "the peer could not read the message"));
  return true;
}

void Channel::finish(std::map<std::uint64_t, std::unique_ptr<Outgoing>>::iterator at, const Error& error) {
  Outgoing& message = *at->second;
  if (message.buffer.at_hand) message.parts.push_back(*message.buffer.at_hand);
  for (Part& part : message.parts) message.buffer.give_back(part);
  if (message.announced) --outgoing_announced_;
  message.request.complete(error, message.buffer.bytes(), &message.buffer);
  outgoing_.erase(at);
}

}  // namespace pinion::transfer
