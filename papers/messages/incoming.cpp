// The receiver's half of a channel.
#include <algorithm>

#include "papers/messages/channel.h"
#include "papers/messages/protocols.h"

namespace pinion::transfer {

void Get::done(const Error& result) {
  error = result;
  inbox.put({peer, std::unique_ptr<Get>(this)});
}

void Channel::receive(std::unique_ptr<Incoming> message) {
  if (failed_) {
    message->request.complete(failed_, 0, nullptr);
  } else if (unmatched_.empty()) {
    posted_.push_back(std::move(message));
  } else {
    const Announced announced = unmatched_.front();
    unmatched_.pop_front();
    match(std::move(message), announced);
  }
}

bool Channel::announced(const Control& control) {
  if (control.message != next_incoming_ || unmatched_.size() + incoming_.size() >= kMostAnnounced)
    return false;
  ++next_incoming_;
  const Announced announced{control.message, control.total, control.bytes, control.source};
  if (posted_.empty()) {
    unmatched_.push_back(announced);
  } else {
    std::unique_ptr<Incoming> message = std::move(posted_.front());
    posted_.pop_front();
    match(std::move(message), announced);
  }
  return true;
}

void Channel::match(std::unique_ptr<Incoming> message, const Announced& announced) {
  Incoming& in = *message;
  if (announced.total > in.buffer.bytes()) {
    queue({.kind = ControlKind::refuse, .code = EMSGSIZE, .message = announced.message});
    in.request.complete(Error::make(EMSGSIZE, "the message has %zu bytes, the receive %zu", announced.total,
                                    in.buffer.bytes()),
                        announced.total, nullptr);
    return;
  }
  in.message = announced.message;
  in.announced = announced.bytes;
  // Only the bytes that arrive are registered.
  in.buffer.shorten(announced.total);
  if (announced.bytes > 0) in.segments.push_back({0, announced.bytes, announced.bytes, announced.source});
  if (announced.bytes < announced.total || announced.total == 0)
    queue({.kind = ControlKind::accept, .message = announced.message});
  flush();
  choose(in.buffer, context_.recent);
  incoming_.emplace(announced.message, std::move(message));
  if (announced.total == 0) finish(in);
}

bool Channel::segment(const Control& control) {
  const auto at = incoming_.find(control.message);
  // This side has refused the message before the peer read that.
  if (at == incoming_.end())
    return control.message < next_incoming_ &&
           std::none_of(unmatched_.begin(), unmatched_.end(),
                        [&](const Announced& a) { return a.message == control.message; });
  Incoming& in = *at->second;
  if (control.offset != in.announced || control.bytes > in.buffer.rest(in.announced) ||
      in.segments.size() >= kMostSegments)
    return false;
  in.segments.push_back({control.offset, control.bytes, control.bytes, control.source});
  in.announced += control.bytes;
  return true;
}

void Channel::get_more(Incoming& in) {
  const unsigned depth = std::max(context_.options.depth, 1u);
  while (!in.failure && in.gets < depth && in.asked < in.announced) {
    if (in.asked == in.covered) {
      Part part;
      if (!next_part(in.buffer, in.asked, in.announced - in.asked, part)) return;
      in.parts.push_back(part);
      in.covered += part.bytes;
    }
    if (!post_get(in)) return;
  }
}

/// Gets as much as one segment, one part and one get hold. False: later, or it has failed.
bool Channel::post_get(Incoming& in) {
  const auto part = std::prev(in.parts.end());
  const auto segment = std::find_if(in.segments.begin(), in.segments.end(), [&](const Segment& s) {
    return s.offset <= in.asked && in.asked < s.offset + s.bytes;
  });
  const std::size_t most = context_.endpoint.capabilities().max_transfer;
  auto get = std::make_unique<Get>(context_.inbox, peer_);
  get->message = in.message;
  get->offset = in.asked;
  get->bytes = std::min(part->offset + part->bytes, segment->offset + segment->bytes) - in.asked;
  if (most > 0) get->bytes = std::min(get->bytes, most);
  get->part = part;
  get->segment = segment;
  const LocalMemory target{part->memory + (in.asked - part->offset), get->bytes, part->descriptor};
  RemoteMemory source = segment->source;
  source.address += in.asked - segment->offset;
  const std::size_t bytes = get->bytes;
  if (Error error = context_.endpoint.get(peer_, target, source, *get)) {
    if (error.code == EAGAIN) {
      context_.again = true;
    } else {
      in.failure = error;
    }
    return false;
  }
  static_cast<void>(get.release());  // done() takes it
  in.asked += bytes;
  ++in.gets;
  ++gets_;
  return true;
}

void Channel::got(std::unique_ptr<Get> get) {
  --gets_;
  Incoming& in = *incoming_.at(get->message);
  --in.gets;
  if (get->error) {
    if (!in.failure) in.failure = get->error;
  } else {
    in.buffer.deliver(*get->part, get->offset, get->bytes);
    in.arrived += get->bytes;
    get->part->moved += get->bytes;
    get->segment->left -= get->bytes;
    if (get->part->moved == get->part->bytes) {
      in.buffer.give_back(*get->part);
      in.parts.erase(get->part);
    }
    if (get->segment->left == 0) {
      if (!in.failure)
        queue({.kind = ControlKind::pulled,
               .message = in.message,
               .offset = get->segment->offset,
               .bytes = get->segment->bytes});
      in.segments.erase(get->segment);
    }
  }
  if ((in.failure && in.gets == 0) || in.arrived == in.buffer.bytes()) finish(in);
}

void Channel::finish(Incoming& in) {
  if (in.buffer.at_hand) in.parts.push_back(*in.buffer.at_hand);
  for (Part& part : in.parts) in.buffer.give_back(part);
  if (in.failure && !failed_) queue({.kind = ControlKind::refuse, .code = EIO, .message = in.message});
  in.request.complete(in.failure, in.buffer.bytes(), &in.buffer);
  incoming_.erase(in.message);
}

}  // namespace pinion::transfer
