// The C API's preparations of memory: checks arguments, and owns the handles. A domain counts its own.
#include <unistd.h>

#include <deque>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "callsite/unwind.h"
#include "lease/lease.h"
#include "pinion/pinion.h"
#include "prepare/preparation.h"
#include "process/c_api_inside.h"

using namespace pinion;

struct pinion_preparation {
  std::unique_ptr<Preparation> work;  ///< null once it has been ended
  pinion_domain* domain = nullptr;
};

namespace {

/// Ended handles, for preparations to come: one that a program still names is memory of ours.
class EndedHandles {
 public:
  std::unique_ptr<pinion_preparation> take() {
    const MutexLock lock(mutex_);
    if (handles_.empty()) return std::make_unique<pinion_preparation>();
    std::unique_ptr<pinion_preparation> handle = std::move(handles_.front());
    handles_.pop_front();
    return handle;
  }
  void keep(pinion_preparation* handle) {
    const MutexLock lock(mutex_);
    handles_.emplace_back(handle);
  }

 private:
  Mutex mutex_;
  std::deque<std::unique_ptr<pinion_preparation>> handles_ GUARDED_BY(mutex_);
};

EndedHandles& ended_handles() {
  static EndedHandles* const handles = new EndedHandles;  // threads may end theirs while the program exits
  return *handles;
}

}  // namespace

int pinion_prepare(pinion_domain* domain, const struct pinion_range* ranges, size_t count,
                   const struct pinion_prepare_options* options, pinion_preparation** preparation) {
  const EntryFrame entry = EntryFrame::here();
  if (!preparation)
    return fail(Error::make(EINVAL, "pinion_prepare: there is no place for the preparation (NULL)"));
  *preparation = nullptr;
  if (!domain) return fail(Error::make(EINVAL, "pinion_prepare: the domain is NULL"));
  if (!ranges || count == 0) return fail(Error::make(EINVAL, "pinion_prepare: there are no ranges"));
  for (size_t i = 0; i < count; ++i)
    if (!is_range(ranges[i].address, ranges[i].bytes))
      return bad_range("pinion_prepare", ranges[i].address, ranges[i].bytes);
  if (options && options->size < sizeof *options) return bad_struct("pinion_prepare", options);
  const pinion_prepare_options chosen = options ? *options : pinion_prepare_options{};
  if (chosen.access > static_cast<unsigned>(Access::all))
    return fail(Error::make(EINVAL, "pinion_prepare: access %#x has unknown flags", chosen.access));
  if (domain->leases != LeasePath::running()) return not_running("pinion_prepare", domain);
  ThreadContext* const thread = this_thread();
  if (!thread) return no_context("pinion_prepare");
  return guarded("pinion_prepare", [&] {
    Preparation::Request request{.ranges = {},
                                 .access = static_cast<Access>(chosen.access),
                                 .hugepages = chosen.hugepages != 0,
                                 .threads = chosen.threads,
                                 .piece_bytes = chosen.piece_bytes};
    for (size_t i = 0; i < count; ++i)
      request.ranges.push_back(Range::of(ranges[i].address, ranges[i].bytes));
    Error error;
    std::unique_ptr<Preparation> work =
        Preparation::start(*domain->leases, domain->number, thread->sites->capture(entry), request, error);
    if (error) return fail(error);
    std::unique_ptr<pinion_preparation> made = ended_handles().take();
    made->work = std::move(work);
    made->domain = domain;
    domain->preparations.fetch_add(1);
    *preparation = made.release();
    return 0;
  });
}

namespace {

bool is_of_this_process(const pinion_preparation* preparation) {
  return preparation && preparation->work && preparation->work->process() == ::getpid();
}

[[gnu::cold]] int bad_preparation(const char* call, const pinion_preparation* preparation) {
  if (!preparation) return fail(Error::make(EINVAL, "%s: the preparation is NULL", call));
  if (!preparation->work) return fail(Error::make(EINVAL, "%s: the preparation has been ended", call));
  return not_running(call, preparation->domain);
}

}  // namespace

int pinion_preparation_poll(const pinion_preparation* preparation, struct pinion_preparation_state* state) {
  if (!is_of_this_process(preparation)) return bad_preparation("pinion_preparation_poll", preparation);
  if (!is_sized(state)) return bad_struct("pinion_preparation_poll", state);
  const Preparation::State now = preparation->work->state();
  return fill(state, {.size = 0,
                      .error = now.error.code,
                      .reserved = 0,
                      .bytes = now.bytes,
                      .prepared_bytes = now.prepared,
                      .elapsed_ns = static_cast<std::uint64_t>(now.elapsed),
                      .left_ns = now.left == kNever ? UINT64_MAX : static_cast<std::uint64_t>(now.left)});
}

int pinion_preparation_wait(const pinion_preparation* preparation, uint64_t timeout_ns) {
  if (!is_of_this_process(preparation)) return bad_preparation("pinion_preparation_wait", preparation);
  const bool for_ever = timeout_ns >= static_cast<std::uint64_t>(kNever) / 2;
  if (!preparation->work->wait(for_ever ? kNever : static_cast<Duration>(timeout_ns)))
    return fail(Error::make(ETIMEDOUT, "pinion_preparation_wait: the memory is still being prepared"));
  const Error error = preparation->work->state().error;
  return error ? fail(error) : 0;
}

int pinion_preparation_cancel(pinion_preparation* preparation) {
  if (!is_of_this_process(preparation)) return bad_preparation("pinion_preparation_cancel", preparation);
  preparation->work->cancel();
  return 0;
}

int pinion_preparation_end(pinion_preparation* preparation) {
  if (!preparation || !preparation->work) return bad_preparation("pinion_preparation_end", preparation);
  // In a forked child its threads are missing, and another thread may have held the lock at the fork.
  if (!is_of_this_process(preparation)) {
    static_cast<void>(preparation->work.release());
    return 0;
  }
  preparation->work.reset();
  preparation->domain->preparations.fetch_sub(1);
  ended_handles().keep(preparation);
  return 0;
}
