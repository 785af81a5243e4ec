#include "support/made_up_cuda/controls.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <thread>

#include "support/made_up_cuda/captures.h"
#include "support/made_up_cuda/contexts.h"
#include "support/made_up_cuda/made_up_cuda.h"

namespace pinion::made_up_cuda {
namespace {

struct Failure {
  std::string name;
  unsigned long long in = 0;
  Result code = kSuccess;
};

struct Controls {
  std::mutex mutex;
  std::list<Entry*> entries;
  std::list<Failure> failures;
  std::map<std::string, std::chrono::microseconds> delays;
  std::atomic<bool> any{false};  ///< there is a failure or a delay
  std::atomic<void (*)(const char*)> observer{nullptr};
  std::atomic<std::uint64_t> forking{0};
};
Controls& controls() {
  static Controls& made = *new Controls;
  return made;
}

StreamPointer stream_of(void* handle) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  if (value > 2) return world().streams.find(handle);
  const ContextPointer context = current_context();
  if (!context) return nullptr;
  return value == 2 ? thread_stream(context) : context->legacy;
}

}  // namespace

void know_entry(Entry& entry) {
  Controls& c = controls();
  const std::lock_guard lock(c.mutex);
  c.entries.push_back(&entry);
}

void notice_call(const char* name) {
  Controls& c = controls();
  if (void (*const observer)(const char*) = c.observer) observer(name);
  if (!c.any) return;
  std::chrono::microseconds delay{0};
  {
    const std::lock_guard lock(c.mutex);
    const auto found = c.delays.find(name);
    if (found != c.delays.end()) delay = found->second;
  }
  if (delay.count() > 0) std::this_thread::sleep_for(delay);
}

Result take_failure(const char* name) {
  Controls& c = controls();
  if (!c.any) return kSuccess;
  const std::lock_guard lock(c.mutex);
  for (auto failure = c.failures.begin(); failure != c.failures.end(); ++failure) {
    if (failure->name != name || --failure->in > 0) continue;
    const Result code = failure->code;
    c.failures.erase(failure);
    return code;
  }
  return kSuccess;
}

void refuse_in_fork(const char* name) {
  if (controls().forking != self().number) return;
  std::fprintf(stderr, "made-up CUDA: %s is called between the driver's own handlers of a fork\n", name);
  std::abort();
}

void set_handlers() {
  ::pthread_atfork(
      [] {
        world().mutex.lock();
        controls().forking = self().number;
      },
      [] {
        controls().forking = 0;
        world().mutex.unlock();
      },
      [] {
        controls().forking = 0;
        world().forked = true;
        world().mutex.unlock();
      });
  std::atexit([] { world().exited = true; });
}

}  // namespace pinion::made_up_cuda

using namespace pinion::made_up_cuda;  // NOLINT(google-build-using-namespace): the exports are C

extern "C" {

unsigned long long madeUpCalls(const char* name) {
  Controls& c = controls();
  const std::lock_guard lock(c.mutex);
  unsigned long long calls = 0;
  for (const Entry* const entry : c.entries) {
    if (std::strcmp(entry->name, name) == 0) calls += entry->calls;
  }
  return calls;
}

void madeUpAtCall(void (*observer)(const char* name)) { controls().observer = observer; }

void madeUpFailCall(const char* name, unsigned long long nth, int code) {
  Controls& c = controls();
  const std::lock_guard lock(c.mutex);
  c.failures.push_back({name, nth, code});
  c.any = true;
}

void madeUpDelayCall(const char* name, unsigned long long microseconds) {
  Controls& c = controls();
  const std::lock_guard lock(c.mutex);
  c.delays[name] = std::chrono::microseconds(microseconds);
  c.any = true;
}

void madeUpDelayWork(unsigned long long microseconds) {
  const Lock lock(world().mutex);
  world().settings.work_delay = std::chrono::microseconds(microseconds);
}

void madeUpDelayBatch(unsigned long long microseconds) {
  const Lock lock(world().mutex);
  world().settings.batch_delay = std::chrono::microseconds(microseconds);
}

void madeUpSetLongestWait(unsigned long long milliseconds) {
  const Lock lock(world().mutex);
  world().settings.longest_wait = std::chrono::milliseconds(milliseconds);
}

void madeUpSetAsyncLimit(size_t bytes) {
  const Lock lock(world().mutex);
  world().settings.async_limit = bytes;
}

void madeUpSetFreeMemory(size_t bytes) {
  const Lock lock(world().mutex);
  world().memory.set_free_bytes(bytes);
}

void madeUpHoldWhileRegistering(unsigned long long microseconds) {
  const Lock lock(world().mutex);
  world().settings.hold_while_registering = std::chrono::microseconds(microseconds);
}

void madeUpFailTransfer(unsigned long long nth, int code) {
  const Lock lock(world().mutex);
  world().settings.failing_transfer = nth;
  world().settings.failing_with = code;
}

void madeUpLeaveOldBytes(int on) {
  const Lock lock(world().mutex);
  world().settings.leaves_old_bytes = on != 0;
}

void madeUpBeStrict(int on) {
  const Lock lock(world().mutex);
  world().settings.strict_captures = on != 0;
}

unsigned long long madeUpCopied(int way) {
  const Lock lock(world().mutex);
  return way < kPinned || way > kWaited ? 0 : world().moved[way];
}

int madeUpWaiting() {
  const Lock lock(world().mutex);
  return world().waiting;
}

int madeUpPins() { return can_pin(); }

void madeUpBreak(void* context, int code) {
  const Lock lock(world().mutex);
  World& w = world();
  for (const ContextPointer& one : w.all_contexts) {
    if (!context || one->handle == context) break_context(*one, code);
  }
}

int madeUpCloseGate(void* handle) {
  const Lock lock(world().mutex);
  const StreamPointer stream = stream_of(handle);
  if (!stream) return kInvalidHandle;
  const std::uint64_t gate = ++stream->gates_closed;
  auto work = std::make_shared<Work>();
  // The work is in the stream's own queue: a reference to the stream would make a circle.
  work->ready = [raw = stream.get(), gate] { return raw->gates_opened >= gate; };
  submit(stream, work);
  return kSuccess;
}

int madeUpOpenGate(void* handle) {
  const Lock lock(world().mutex);
  const StreamPointer stream = stream_of(handle);
  if (!stream) return kInvalidHandle;
  stream->gates_opened = stream->gates_closed;
  announce();
  return kSuccess;
}

unsigned long long madeUpPending(void* handle) {
  const Lock lock(world().mutex);
  const StreamPointer stream = stream_of(handle);
  return stream ? stream->queue.size() : 0;
}

void* madeUpDeviceBytes(unsigned long long device) {
  const Lock lock(world().mutex);
  return world().memory.allocation(device) ? world().memory.view(device) : nullptr;
}

unsigned long long madeUpRegistrations() {
  const Lock lock(world().mutex);
  return world().registrations.size();
}

unsigned long long madeUpRegisteredBytes() {
  const Lock lock(world().mutex);
  unsigned long long bytes = 0;
  for (const auto& [begin, registration] : world().registrations) bytes += registration->range.bytes();
  return bytes;
}

int madeUpRegistration(const void* address, const void** begin, size_t* bytes) {
  const Lock lock(world().mutex);
  const RegistrationPointer found = registration_of(reinterpret_cast<pinion::Address>(address));
  if (!found) return 0;
  if (begin) *begin = reinterpret_cast<const void*>(found->range.begin);
  if (bytes) *bytes = found->range.bytes();
  return 1;
}

void* madeUpKernel(void (*body)(const unsigned long long* parameters), unsigned count) {
  const Lock lock(world().mutex);
  return world().kernels.add(std::make_shared<Kernel>(Kernel{body, std::vector<unsigned>(count, 8)}));
}

}  // extern "C"
