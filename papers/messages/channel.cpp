#include "papers/messages/channel.h"

#include <cerrno>
#include <utility>

namespace pinion::transfer {

void Channel::control(const Control& control) {
  if (failed_) return;
  bool sensible = false;
  switch (control.kind) {
    case ControlKind::announce:
      sensible = announced(control);
      break;
    case ControlKind::segment:
      sensible = segment(control);
      break;
    case ControlKind::accept:
      sensible = accepted(control);
      break;
    case ControlKind::pulled:
      sensible = pulled(control);
      break;
    case ControlKind::refuse:
      sensible = refused(control);
      break;
  }
  if (!sensible)
    fail(Error::make(EPROTO, "peer %u sent a control message that fits no message of it", peer_));
}

void Channel::fail(const Error& error) {
  if (failed_) return;
  failed_ = error;
  unsent_.clear();
  unmatched_.clear();
  while (!outgoing_.empty()) finish(outgoing_.begin(), error);
  for (const auto& message : std::exchange(posted_, {})) message->request.complete(error, 0, nullptr);
  for (auto at = incoming_.begin(); at != incoming_.end();) {
    Incoming& message = *(at++)->second;
    if (!message.failure) message.failure = error;
    if (message.gets == 0) finish(message);
  }
}

void Channel::step() {
  if (failed_) return;
  flush();
  announce_more();
  for (auto at = outgoing_.begin(); at != outgoing_.end() && at->second->announced; ++at)
    if (at->second->buffer.accepted) offer_more(at->first, *at->second);
  for (auto at = incoming_.begin(); at != incoming_.end();) {
    Incoming& message = *(at++)->second;
    get_more(message);
    if (message.failure && message.gets == 0) finish(message);
  }
  flush();
}

void Channel::queue(const Control& control) { unsent_.push_back(encode(control)); }

void Channel::flush() {
  while (!unsent_.empty() && !failed_) {
    const Error error = context_.endpoint.send(peer_, context_.options.kind, unsent_.front().data(),
                                               unsent_.front().size(), nullptr);
    if (error.code == EAGAIN) {
      context_.again = true;
      return;
    }
    if (error) {
      // Callers hold messages of this channel: it ends by way of the inbox.
      context_.inbox.put({peer_, Gone{}});
      return;
    }
    unsent_.pop_front();
  }
}

}  // namespace pinion::transfer
