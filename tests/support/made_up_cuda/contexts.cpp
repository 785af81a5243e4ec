#include "support/made_up_cuda/contexts.h"

#include <algorithm>

#include "support/made_up_cuda/captures.h"
#include "support/made_up_cuda/registrations.h"

namespace pinion::made_up_cuda {

ContextPointer current_context() {
  const Thread& thread = self();
  return thread.contexts.empty() ? nullptr : world().contexts.find(thread.contexts.back());
}

StreamPointer make_stream(const ContextPointer& context, unsigned flags) {
  auto stream = std::make_shared<Stream>();
  stream->context = context;
  stream->flags = flags;
  context->streams.push_back(stream);
  return stream;
}

ContextPointer make_context(int device, unsigned flags) {
  World& w = world();
  auto context = std::make_shared<Context>();
  context->handle = w.contexts.add(context);
  context->id = ++w.last_context_id;
  context->device = device;
  context->flags = flags;
  context->legacy = make_stream(context, 0);
  context->legacy->legacy = true;
  w.all_contexts.push_back(context);
  return context;
}

void end_context(Lock& lock, const ContextPointer& context, const char* call) {
  World& w = world();
  const std::uint64_t last = context->works;
  context->held = true;
  wait(lock, call, [&] { return idle_up_to(*context, last); });
  end_registrations_of(lock, context->id);
  w.memory.free_all_of(context->id);
  std::erase_if(w.captures, [&](const auto& capture) { return capture->origin->context == context; });
  w.contexts.remove(context->handle);
  w.all_contexts.erase(std::find(w.all_contexts.begin(), w.all_contexts.end(), context));
  context->alive = false;
  context->held = false;
  for (const StreamPointer& stream : context->streams) {
    stream->destroyed = true;
    if (stream->handle) w.streams.remove(stream->handle);
    stream->wake.notify_one();
  }
  context->streams.clear();
  context->per_thread.clear();
  context->legacy.reset();
  announce();
}

StreamPointer thread_stream(const ContextPointer& context) {
  StreamPointer& stream = context->per_thread[self().number];
  if (!stream) stream = make_stream(context, 0);
  return stream;
}

void end_thread_streams(std::uint64_t thread) {
  World& w = world();
  if (w.forked || w.exited) return;
  const Lock lock(w.mutex);
  for (const ContextPointer& context : w.all_contexts) {
    const auto found = context->per_thread.find(thread);
    if (found == context->per_thread.end()) continue;
    const StreamPointer stream = found->second;
    context->per_thread.erase(found);
    stream->destroyed = true;
    stream->wake.notify_one();
    // The context waits for its work as before; the thread of the stream takes it out when it ends.
    if (stream->queue.empty()) std::erase(context->streams, stream);
  }
}

}  // namespace pinion::made_up_cuda
