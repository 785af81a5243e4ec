#include "support/made_up_cuda/work.h"

#include <sched.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "support/made_up_cuda/world.h"

namespace pinion::made_up_cuda {
namespace {

/// A stream takes so much pending work; a call that adds more waits.
constexpr std::size_t kMostPending = 1021;  // a gate and 1,020 launches
constexpr std::chrono::microseconds kPoll{50};

/// Whether work of that number need not wait for other streams: the legacy stream and the blocking ones
/// wait for each other.
bool in_turn(const Stream& stream, std::uint64_t number) {
  const auto before = [number](const StreamPointer& other) {
    return !other->queue.empty() && other->queue.front()->number < number;
  };
  if (!stream.blocking()) return true;
  if (!stream.legacy) return !before(stream.context->legacy);
  return std::none_of(
      stream.context->streams.begin(), stream.context->streams.end(),
      [&](const StreamPointer& other) { return !other->legacy && other->blocking() && before(other); });
}

bool runnable(const Stream& stream) {
  const Work& work = *stream.queue.front();
  if (stream.context->sticky) return true;
  return in_turn(stream, work.number) && (!work.ready || work.ready());
}

/// Runs the stream's first work, which stays in the queue meanwhile.
void run_first(Lock& lock, Stream& stream) {
  const WorkPointer work = stream.queue.front();
  if (work->run && !stream.context->sticky) {
    const auto delay = world().settings.work_delay;
    lock.unlock();
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    const Result result = work->run();
    lock.lock();
    if (result) break_context(*stream.context, result);
  }
  work->done = true;
  work->ended = Clock::now();
  stream.staged -= work->staging;
  stream.queue.pop_front();
  announce();
}

/// The stream's thread. It ends after the stream was destroyed. A GPU has no part in the priority of the
/// thread that submits to it first.
void serve(const StreamPointer& stream) {
  const sched_param ordinary{};
  ::sched_setscheduler(0, SCHED_OTHER, &ordinary);
  Lock lock(world().mutex);
  while (!stream->queue.empty() || !stream->destroyed) {
    if (stream->queue.empty()) {
      stream->wake.wait(lock);
    } else if (!stream->queue.front()->by_caller && runnable(*stream)) {
      run_first(lock, *stream);
    } else {
      stream->blocked = true;
      if (stream->queue.front()->polls) {
        stream->wake.wait_for(lock, kPoll);
      } else {
        stream->wake.wait(lock);
      }
      stream->blocked = false;
    }
  }
  std::erase(stream->context->streams, stream);
}

void append(const StreamPointer& stream, const WorkPointer& work) {
  stream->staged += work->staging;
  stream->queue.push_back(work);
}

}  // namespace

void announce() {
  World& w = world();
  if (w.waiting > 0) w.changed.notify_all();
  for (const ContextPointer& context : w.all_contexts) {
    for (const StreamPointer& stream : context->streams) {
      if (stream->blocked) stream->wake.notify_one();
    }
  }
}

void break_context(Context& context, Result error) {
  const auto mark = [error](Context& broken) {
    if (!broken.sticky) broken.sticky = error;
  };
  mark(context);
  if (error == kIllegalAddress) {
    for (const ContextPointer& other : world().all_contexts) mark(*other);
  }
  announce();
}

void enter(Lock& lock, Stream& stream, const char* call) {
  wait(lock, call,
       [&stream] { return !stream.context->held && !stream.held && stream.queue.size() < kMostPending; });
}

void submit(const StreamPointer& stream, WorkPointer work) {
  work->number = ++stream->context->works;
  if (!work->run && !work->ready && stream->queue.empty() && in_turn(*stream, work->number)) {
    work->done = true;
    work->ended = Clock::now();
    return;
  }
  append(stream, work);
  if (!stream->worker) {
    stream->worker = true;
    std::thread([stream] { serve(stream); }).detach();
  }
  stream->wake.notify_one();
}

Result submit_and_run(Lock& lock, const StreamPointer& stream, WorkPointer work, const char* call) {
  work->number = ++stream->context->works;
  work->by_caller = true;
  append(stream, work);
  wait(lock, call, [&] { return stream->queue.front() == work && runnable(*stream); });
  run_first(lock, *stream);
  return stream->context->sticky;
}

Result await(Lock& lock, Context& context, const Work& work, const char* call) {
  wait(lock, call, [&work] { return work.done; });
  return context.sticky;
}

bool done_up_to(const Stream& stream, std::uint64_t number) {
  const auto done = [number](const Stream& one) {
    return one.queue.empty() || one.queue.front()->number > number;
  };
  if (!stream.legacy) return done(stream);
  return std::all_of(stream.context->streams.begin(), stream.context->streams.end(),
                     [&](const StreamPointer& one) { return !one->blocking() || done(*one); });
}

bool idle_up_to(const Context& context, std::uint64_t number) {
  return std::all_of(context.streams.begin(), context.streams.end(), [number](const StreamPointer& one) {
    return one->queue.empty() || one->queue.front()->number > number;
  });
}

}  // namespace pinion::made_up_cuda
