#include "papers/messages/large_messages.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "papers/messages/channel.h"
#include "papers/messages/inbox.h"
#include "papers/messages/protocols.h"

namespace pinion::transfer {

void Request::begin() {
  error_ = {};
  bytes_ = copied_ = 0;
  protocol_ = Protocol::automatic;
  done_.store(false, std::memory_order_relaxed);
}

void Request::complete(const Error& error, std::size_t bytes, const Buffer* buffer) {
  error_ = error;
  bytes_ = bytes;
  if (buffer) {
    protocol_ = buffer->protocol;
    copied_ = buffer->copied();
  }
  done_.store(true, std::memory_order_release);  // its owner may end it now
}

LargeMessages::LargeMessages(Endpoint& endpoint, const MessageOptions& options)
    : endpoint_(endpoint), options_(options), inbox_(std::make_unique<Inbox>(endpoint.peers())) {
  const ChannelContext context{endpoint_, options_, endpoint.domain(), pool_, recent_, *inbox_, again_};
  for (Peer peer = 0; peer < endpoint.peers(); ++peer)
    channels_.push_back(std::make_unique<Channel>(context, peer));
}

LargeMessages::~LargeMessages() = default;

LargeMessages::Result LargeMessages::open(Endpoint& endpoint, const MessageOptions& options) {
  if (options.chunks < BouncePool::kLeastChunks || options.chunk_bytes == 0 || options.piece_bytes == 0 ||
      options.kind >= Endpoint::kKinds)
    return {
        Error::make(EINVAL, "messages need %u chunks at least, and sizes above 0", BouncePool::kLeastChunks),
        nullptr};
  if (endpoint.capabilities().max_message < kMostControlBytes)
    return {Error::make(ENOTSUP, "the endpoint's messages hold %zu bytes; %zu are needed",
                        endpoint.capabilities().max_message, kMostControlBytes),
            nullptr};
  std::unique_ptr<LargeMessages> made(new LargeMessages(endpoint, options));
  if (Error error = made->pool_.open(endpoint.domain(), options.chunks, options.chunk_bytes))
    return {error, nullptr};
  if (options.protocol == Protocol::automatic && options.bounce_below == 0)
    made->options_.bounce_below = measure_bounce_below(endpoint.domain(), options.pipeline_from);
  endpoint.handle(options.kind, *made->inbox_);
  return {{}, std::move(made)};
}

void LargeMessages::send(Peer to, const void* data, std::size_t bytes, Request& request) {
  request.begin();
  // Only read: a send's parts have no right to write.
  char* const memory = static_cast<char*>(const_cast<void*>(data));
  auto message = std::make_unique<Outgoing>(
      request, Buffer(endpoint_.domain(), pool_, options_, Direction::send, memory, bytes));
  // Registered here: retention identifies a buffer by the calls that led to it.
  choose(message->buffer, recent_);
  if (message->buffer.protocol == Protocol::rendezvous && !message->buffer.at_hand) {
    Part part;
    if (message->buffer.lease(0, bytes, part)) {
      message->buffer.at_hand = part;
    } else {
      message->buffer.protocol = Protocol::pipeline;
    }
  }
  inbox_->put({to, std::move(message)});
  progress();
}

void LargeMessages::receive(Peer from, void* memory, std::size_t bytes, Request& request) {
  request.begin();
  inbox_->put({from, std::make_unique<Incoming>(
                         request, Buffer(endpoint_.domain(), pool_, options_, Direction::receive,
                                         static_cast<char*>(memory), bytes))});
  progress();
}

bool LargeMessages::test(Request& request) {
  if (!request.done()) progress();
  return request.done();
}

const Error& LargeMessages::wait(Request& request) {
  while (!test(request)) {
    if (progress() == 0 && !request.done()) endpoint_.wait(kMillisecond);
  }
  return request.error();
}

unsigned LargeMessages::progress() {
  unsigned happened = endpoint_.progress();
  // Once more: another thread may have left its work while this one was about to leave.
  do {
    if (!driver_.try_lock()) return happened;
    const MutexLock lock(driver_, std::adopt_lock);
    happened += drive();
  } while (!inbox_->empty());
  return happened;
}

unsigned LargeMessages::drive() {
  std::vector<Event> events = inbox_->take();
  if (events.empty() && !again_) return 0;
  again_ = false;
  for (Event& event : events) {
    Channel& channel = *channels_[event.peer];
    if (auto* control = std::get_if<Control>(&event.what)) {
      channel.control(*control);
    } else if (auto* get = std::get_if<std::unique_ptr<Get>>(&event.what)) {
      channel.got(std::move(*get));
    } else if (auto* outgoing = std::get_if<std::unique_ptr<Outgoing>>(&event.what)) {
      channel.send(std::move(*outgoing));
    } else if (auto* incoming = std::get_if<std::unique_ptr<Incoming>>(&event.what)) {
      channel.receive(std::move(*incoming));
    } else if (std::holds_alternative<Gone>(event.what)) {
      channel.fail(Error::make(ECONNRESET, "peer %u is gone", event.peer));
    } else {
      channel.fail(Error::make(EPROTO, "peer %u sent bytes that are no control message", event.peer));
    }
  }
  for (std::size_t i = 0; i < channels_.size(); ++i) channels_[(first_ + i) % channels_.size()]->step();
  first_ = (first_ + 1) % channels_.size();
  return static_cast<unsigned>(events.size());
}

void LargeMessages::close() {
  const auto any = [&](auto&& holds) {
    const MutexLock lock(driver_);
    return std::any_of(channels_.begin(), channels_.end(), holds);
  };
  // The last `pulled` of a message that ended here ends it for its sender.
  do {
    if (progress() == 0) endpoint_.wait(kMillisecond);
  } while (any([](const auto& channel) { return channel->has_unsent(); }));
  inbox_->close();
  const Error error = Error::make(ECANCELED, "the messages were closed");
  {
    const MutexLock lock(driver_);
    for (const auto& channel : channels_) channel->fail(error);
  }
  while (any([](const auto& channel) { return channel->has_gets(); }))
    if (progress() == 0) endpoint_.wait(kMillisecond);
  pool_.close();
}

}  // namespace pinion::transfer
