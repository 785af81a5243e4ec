// All state of the made-up driver, and the guard that each call of the program begins with.
//
// Owns the one mutex. Kept for ever, because streams' threads outlive main().
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "support/made_up_cuda/device_memory.h"
#include "support/made_up_cuda/handle_table.h"
#include "support/made_up_cuda/pinned_pages.h"
#include "support/made_up_cuda/work.h"

namespace pinion::made_up_cuda {

struct Array;
struct Graph;
struct Node;
struct Capture;

struct Registration {
  Range range;
  unsigned flags = 0;
  std::uint64_t context = 0;  ///< the id of the context that was current
  bool allocated = false;     ///< by cuMemHostAlloc
  bool making = true;         ///< its pages are being pinned
  bool alive = true;
  int uses = 0;  ///< copies that are running
  Pins pins;
};
using RegistrationPointer = std::shared_ptr<Registration>;

struct Event {
  unsigned flags = 0;
  ContextPointer context;
  WorkPointer work;                  ///< the last record; none: never recorded
  std::shared_ptr<Capture> capture;  ///< it was recorded in a stream that captured
};

/// A function of a module: a host function, and the bytes of each of its parameters.
struct Kernel {
  void (*body)(const unsigned long long*) = nullptr;
  std::vector<unsigned> parameters;
};

struct Settings {
  std::size_t async_limit = 2097152;  ///< the largest pageable copy that returns at once
  std::chrono::milliseconds longest_wait{60000};
  std::chrono::microseconds work_delay{0}, batch_delay{1000};
  std::chrono::microseconds hold_while_registering{0};
  unsigned long long failing_transfer = 0;  ///< 1: the next one fails; 0: none
  Result failing_with = kSuccess;
  bool leaves_old_bytes = false;  ///< transfers of pinned memory do half of their work
  bool strict_exit = false;
  bool strict_captures = false;  ///< questions about what a capture has taken up are refused
};

/// How bytes of host memory were moved.
enum Way { kPinned, kStaged, kWaited };

struct World {
  std::mutex mutex;
  std::condition_variable changed;
  int waiting = 0;
  bool initialized = false;
  std::atomic<bool> forked{false}, exited{false};
  Settings settings;
  DeviceMemory memory;
  HandleTable<Context, 1> contexts;
  HandleTable<Stream, 2> streams;
  HandleTable<Event, 3> events;
  HandleTable<Kernel, 4> kernels;
  HandleTable<Graph, 5> graphs;
  HandleTable<Graph, 6> executables;
  HandleTable<Node, 7> nodes;
  HandleTable<Array, 8> arrays;
  std::map<std::string, Handle> named_kernels;
  ContextPointer primary;
  std::vector<ContextPointer> all_contexts;
  std::uint64_t last_context_id = 0;
  std::map<Address, RegistrationPointer> registrations;
  std::vector<std::shared_ptr<Capture>> captures;
  unsigned long long moved[3] = {};  ///< bytes, by Way
};
World& world();

/// What the driver knows of a thread.
struct Thread {
  Thread();
  ~Thread();
  std::uint64_t number = 0;
  std::vector<Handle> contexts;  ///< the last one is current
  int capture_mode = 0;
  int in_callback = 0;
  bool fault = false;  ///< the kernel that it runs has used memory that is none
};
Thread& self();

/// Waits for a condition. Ends the process with a line, if that takes too long: the program hangs.
template <class Condition>
void wait(Lock& lock, const char* call, Condition&& condition);

// ---- calls ----

/// What a call needs before it can do anything.
enum class Need { kNothing, kInitialized, kContext };

/// An entry point's name and how often it was called.
struct Entry {
  explicit Entry(const char* name);
  const char* name;
  std::atomic<unsigned long long> calls{0};
};

/// A call of the program, which holds the mutex while it lives.
class Call {
 public:
  explicit Call(Entry& entry);
  /// An error that the call returns, before it does anything.
  Result begin(Need need);
  /// The current context, which begin() has found.
  const ContextPointer& context() const { return context_; }
  /// The stream of a handle; null: there is none.
  StreamPointer stream(const void* handle, Default meaning) const;
  const char* name() const { return entry_.name; }
  Lock& lock() { return lock_; }
  /// The error of the context that ended for good, or success.
  Result sticky() const { return context_ ? context_->sticky : kSuccess; }

 private:
  Entry& entry_;
  Lock lock_;
  ContextPointer context_;
};

/// Begins the body of an entry point: counts it and returns what forbids it.
#define MADE_UP_CALL(need)      \
  static Entry entry(__func__); \
  Call call(entry);             \
  if (const Result refused = call.begin(need)) return refused

[[noreturn]] void hang(const char* call);

template <class Condition>
void wait(Lock& lock, const char* call, Condition&& condition) {
  if (condition()) return;
  World& w = world();
  const auto deadline = Clock::now() + w.settings.longest_wait;
  ++w.waiting;
  while (!condition()) {
    if (w.changed.wait_until(lock, deadline) == std::cv_status::timeout && !condition()) hang(call);
  }
  --w.waiting;
}

}  // namespace pinion::made_up_cuda
