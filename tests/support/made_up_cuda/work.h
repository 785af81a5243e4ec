// Work of the made-up device: pieces of work in streams, streams in contexts, and how calls wait for them.
//
// Owns no global state (world.h does). Everything is guarded by the driver's mutex, unless a comment says
// otherwise; pieces of work run without it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "support/made_up_cuda/types.h"

namespace pinion::made_up_cuda {

using Lock = std::unique_lock<std::mutex>;
using Clock = std::chrono::steady_clock;

struct Capture;

/// A piece of work: a copy, a kernel, a marker.
struct Work {
  std::uint64_t number = 0;     ///< its place in the order of its context
  std::function<Result()> run;  ///< called without the mutex; none: a marker
  std::function<bool()> ready;  ///< under the mutex: whether what it waits for has come; none: at once
  bool polls = false;           ///< `ready` may turn true without a notice
  bool by_caller = false;       ///< the waiting call runs it, instead of the stream's thread
  std::size_t staging = 0;      ///< its part of the stream's staging memory
  bool done = false;
  Clock::time_point ended;
};
using WorkPointer = std::shared_ptr<Work>;

struct Context;

struct Stream {
  std::shared_ptr<Context> context;
  Handle handle = nullptr;
  unsigned flags = 0;
  int priority = 0;
  bool legacy = false;
  std::deque<WorkPointer> queue;  ///< pending, the first one perhaps running
  bool held = false;              ///< a call that waits keeps other calls out of the stream
  bool worker = false, destroyed = false, blocked = false;
  std::uint64_t gates_closed = 0, gates_opened = 0;
  std::size_t staged = 0;
  std::condition_variable wake;  ///< of its thread
  std::shared_ptr<Capture> capture;

  bool blocking() const { return (flags & gpu::kNonBlocking) == 0; }
};
using StreamPointer = std::shared_ptr<Stream>;

struct Context {
  Handle handle = nullptr;
  std::uint64_t id = 0;
  int device = 0;
  unsigned flags = 0;
  bool primary = false;
  int users = 0;  ///< of a primary context
  bool alive = true;
  Result sticky = kSuccess;
  bool held = false;            ///< a call that waits keeps launches, copies and registers out
  bool registers_held = false;  ///< it keeps registers out
  std::uint64_t works = 0;      ///< the number of the last piece of work
  StreamPointer legacy;
  std::map<std::uint64_t, StreamPointer> per_thread;
  std::vector<StreamPointer> streams;  ///< all of them
};
using ContextPointer = std::shared_ptr<Context>;

// ---- putting work into streams ----

/// Waits until the stream takes work: nobody holds it or its context, and its queue has room.
void enter(Lock& lock, Stream& stream, const char* call);
/// Appends work, which the stream's thread will run.
void submit(const StreamPointer& stream, WorkPointer work);
/// Appends work, waits for its turn and runs it in the calling thread.
Result submit_and_run(Lock& lock, const StreamPointer& stream, WorkPointer work, const char* call);

// ---- waiting ----

/// Waits until the work is done. The result is the context's sticky error, if any.
Result await(Lock& lock, Context& context, const Work& work, const char* call);
/// Whether all work up to the number, which the stream has or waits for, is done.
bool done_up_to(const Stream& stream, std::uint64_t number);
bool idle_up_to(const Context& context, std::uint64_t number);

/// Notes a failure of the context's work for good. A fault breaks all contexts of the process.
void break_context(Context& context, Result error);
/// Wakes whom a change may concern.
void announce();

}  // namespace pinion::made_up_cuda
