// The C API of firehose (include/pinion/firehose.h) over a job: checks arguments, keeps exceptions inside,
// and turns results into errno values and this thread's text. Owns nothing but calls without an end yet.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "firehose/bucket_choice.h"
#include "firehose/job.h"
#include "pinion/firehose.h"
#include "process/build_stamp.h"
#include "process/c_api_inside.h"

using namespace pinion;
using firehose::Call;
using firehose::Job;
using firehose::PartKind;

namespace {

/// Libpinion's private part is this library's only where both are of one build.
bool is_of_one_build() {
#ifdef PINION_FIREHOSE_LIBRARY
  static constexpr char kOwn[] =
#include "build_stamp.inc"
      ;
  return build_stamp != nullptr && std::strcmp(build_stamp, kOwn) == 0;
#else
  return true;
#endif
}

// ---- checks

[[gnu::cold]] int bad_firehose(const char* call, const pinion_firehose* firehose) {
  if (!firehose) return fail(Error::make(EINVAL, "%s: the firehose is NULL", call));
  return fail(Error::make(ESHUTDOWN,
                          "%s: this process was forked from the one that opened the firehose, and is no "
                          "part of its job",
                          call));
}

bool is_usable(const pinion_firehose* firehose) { return firehose && Job::of(firehose)->is_here(); }

/// 0, or why the operation cannot begin.
int check(const char* call, pinion_firehose* firehose, unsigned peer, std::uint64_t remote, const void* local,
          std::size_t bytes) {
  if (!is_usable(firehose)) [[unlikely]]
    return bad_firehose(call, firehose);
  if (peer >= Job::of(firehose)->peers()) [[unlikely]]
    return fail(
        Error::make(EINVAL, "%s: there is no process %u among %u", call, peer, Job::of(firehose)->peers()));
  if (bytes > 0 && (!local || !is_addressable(remote, bytes))) [[unlikely]]
    return fail(Error::make(local ? EFAULT : EINVAL, "%s: no memory can be at %#llx (%zu bytes)", call,
                            static_cast<unsigned long long>(local ? remote : 0), bytes));
  return 0;
}

/// Handlers of the program's run inside progress, which would wait for itself.
int check_may_wait(const char* call) {
  if (!Job::in_handler()) return 0;
  return fail(Error::make(EDEADLK, "%s: a handler never waits: post, and wait elsewhere", call));
}

int failed(const char* call, unsigned peer, int code) {
  switch (code) {
    case 0:
      return 0;
    case ECONNRESET:
      return fail(Error::make(code, "%s: process %u is gone", call, peer));
    case EPERM:
      return fail(Error::make(code, "%s: process %u does not expose that memory", call, peer));
    case EFAULT:
      return fail(Error::make(
          code, "%s: the memory is not mapped, or forbids the access, at process %u or here", call, peer));
    default:
      return fail(Error::make(code, "%s: with process %u: %s", call, peer, std::strerror(code)));
  }
}

// ---- calls

/// A handle: the call, or 0 and the error it ended with (and the peer).
std::uint64_t& word(pinion_firehose_handle& handle, int i) { return handle.opaque[i]; }

Call* call_of(pinion_firehose_handle& handle) { return reinterpret_cast<Call*>(word(handle, 0)); }

void end(pinion_firehose_handle& handle, const Call& call) {
  word(handle, 0) = 0;
  word(handle, 1) = static_cast<std::uint64_t>(call.error.load(std::memory_order_relaxed)) << 32 | call.peer;
}

int result(const char* call, const pinion_firehose_handle& handle) {
  return failed(call, static_cast<unsigned>(handle.opaque[1]), static_cast<int>(handle.opaque[1] >> 32));
}

int wait_for(const char* name, Job& job, pinion_firehose_handle& handle) {
  if (Call* const call = call_of(handle)) {
    if (!call->is_done())
      if (const int code = check_may_wait(name)) return code;
    job.until([&] { return call->is_done(); });
    end(handle, *call);
    delete call;
  }
  return result(name, handle);
}

using Pieces = std::span<const pinion_firehose_piece>;

/// Makes a call of pieces. It is the caller's to end, but for an implicit one. Throws bad_alloc, without
/// effect.
Call* launch(Job& job, unsigned peer, PartKind kind, Pieces pieces, bool implicit = false) {
  auto made = std::make_unique<Call>(peer);
  if (implicit) made->implicit = job.calls().implicit();
  Call* const call = made.release();  // its parts end it
  job.calls().count(*call);
  job.calls().start(*call, kind, pieces);
  job.calls().launched(*call);
  return call;
}

int start(const char* name, pinion_firehose* firehose, unsigned peer, PartKind kind,
          const pinion_firehose_piece* pieces, std::size_t count, pinion_firehose_handle* handle) {
  if (!handle) return fail(Error::make(EINVAL, "%s: there is no place for the handle (NULL)", name));
  *handle = {};
  if (!pieces && count > 0) return fail(Error::make(EINVAL, "%s: the pieces are NULL", name));
  for (std::size_t i = 0; i < std::max<std::size_t>(count, 1); ++i) {
    const pinion_firehose_piece piece = count ? pieces[i] : pinion_firehose_piece{};
    if (const int code = check(name, firehose, peer, piece.remote, piece.local, piece.bytes)) return code;
  }
  return guarded(name, [&] {
    Call* const call = launch(*Job::of(firehose), peer, kind, Pieces(pieces, count));
    word(*handle, 0) = reinterpret_cast<std::uint64_t>(call);
    return 0;
  });
}

int start_implicit(const char* name, pinion_firehose* firehose, unsigned peer, PartKind kind,
                   const pinion_firehose_piece& piece) {
  if (const int code = check(name, firehose, peer, piece.remote, piece.local, piece.bytes)) return code;
  return guarded(name, [&] {
    launch(*Job::of(firehose), peer, kind, Pieces(&piece, 1), true);
    return 0;
  });
}

int run(const char* name, pinion_firehose* firehose, unsigned peer, PartKind kind,
        const pinion_firehose_piece& piece) {
  if (const int code = check_may_wait(name)) return code;
  const Time begin = monotonic_now();
  pinion_firehose_handle handle;
  if (const int code = start(name, firehose, peer, kind, &piece, 1, &handle)) return code;
  Job& job = *Job::of(firehose);
  const Call& call = *call_of(handle);
  job.until([&] { return call.is_done(); });
  if (kind == PartKind::put) job.calls().put_took(call, monotonic_now() - begin);
  return wait_for(name, job, handle);
}

pinion_firehose_piece piece_of(const void* local, std::uint64_t remote, std::size_t bytes) {
  return {const_cast<void*>(local), remote, bytes};
}

int fence_of(const char* name, Job& job) {
  const auto& calls = job.calls().implicit();
  job.until([&] { return calls->left.load(std::memory_order_acquire) == 0; });
  const int code = calls->error.exchange(0);
  if (code == 0) return 0;
  return fail(Error::make(code, "%s: a put or get failed: %s", name, std::strerror(code)));
}

int check_waiting(const char* name, pinion_firehose* firehose) {
  if (!is_usable(firehose)) return bad_firehose(name, firehose);
  return check_may_wait(name);
}

/// `given` is null, or one of the two names.
Error check_choice(const char* option, const char* given, const char* usual, const char* other) {
  if (!given || std::strcmp(given, usual) == 0 || std::strcmp(given, other) == 0) return {};
  return Error::make(EINVAL, "pinion_firehose_open: %s `%s`: valid are %s, %s", option, given, usual, other);
}

Error check_options(const pinion_firehose_options& options) {
  const char* const name = "pinion_firehose_open";
  if (options.processes > 0 && options.process >= options.processes)
    return Error::make(EINVAL, "%s: process %u of %u: there is no such number", name, options.process,
                       options.processes);
  if (options.processes > 0 && !options.directory)
    return Error::make(EINVAL, "%s: name a directory where the processes meet", name);
  if (options.bucket && !pinion::firehose::is_bucket(options.bucket))
    return Error::make(EINVAL, "%s: a bucket of %llu bytes: valid are powers of two from a page to 1 GiB",
                       name, static_cast<unsigned long long>(options.bucket));
  if (options.segment_count > 0 && !options.segments)
    return Error::make(EINVAL, "%s: the segments are NULL", name);
  if (Error error = check_choice("sharing", options.sharing, "lending", "static")) return error;
  return check_choice("rides", options.rides, "on", "off");
}

}  // namespace

// ---- joining

int pinion_firehose_open(const struct pinion_firehose_options* given, pinion_firehose** firehose) {
  const char* const name = "pinion_firehose_open";
  if (!firehose) return fail(Error::make(EINVAL, "%s: there is no place for the firehose (NULL)", name));
  *firehose = nullptr;
  if (!given || given->size < sizeof given->size || given->size > sizeof *given)
    return fail(Error::make(EINVAL, "%s: set the field `size` to the size of the structure, %zu", name,
                            sizeof *given));
  pinion_firehose_options options{};
  std::memcpy(&options, given, given->size);
  if (Error error = check_options(options)) return fail(error);
  return guarded(name, [&] {
    if (!is_of_one_build())
      return fail(Error::make(ELIBBAD,
                              "%s: the process's libpinion is of another build than libpinion-firehose: "
                              "install both from one build",
                              name));
    if (const int code = pinion_start(nullptr)) return code;
    Job::Result made = Job::open(options);
    if (made.error) {
      static_cast<void>(pinion_stop());
      return fail(made.error);
    }
    *firehose = made.job.release()->handle();
    return 0;
  });
}

int pinion_firehose_close(pinion_firehose* firehose) {
  const char* const name = "pinion_firehose_close";
  if (!firehose) return bad_firehose(name, firehose);
  if (!Job::of(firehose)->is_here()) return 0;  // all of it is the parent's
  if (const int code = check_may_wait(name)) return code;
  return guarded(name, [&] {
    const Error error = Job::of(firehose)->close();
    if (error) return fail(error);
    delete Job::of(firehose);
    return pinion_stop();
  });
}

unsigned pinion_firehose_process(const pinion_firehose* firehose) {
  return firehose ? Job::of(firehose)->self() : 0;
}
unsigned pinion_firehose_processes(const pinion_firehose* firehose) {
  return firehose ? Job::of(firehose)->peers() : 0;
}

// ---- puts and gets

int pinion_firehose_put(pinion_firehose* firehose, unsigned to, uint64_t target, const void* source,
                        size_t bytes) {
  return run("pinion_firehose_put", firehose, to, PartKind::put, piece_of(source, target, bytes));
}

int pinion_firehose_get(pinion_firehose* firehose, unsigned from, uint64_t source, void* target,
                        size_t bytes) {
  return run("pinion_firehose_get", firehose, from, PartKind::get, piece_of(target, source, bytes));
}

int pinion_firehose_put_nb(pinion_firehose* firehose, unsigned to, uint64_t target, const void* source,
                           size_t bytes, pinion_firehose_handle* handle) {
  const pinion_firehose_piece piece = piece_of(source, target, bytes);
  return start("pinion_firehose_put_nb", firehose, to, PartKind::put, &piece, 1, handle);
}

int pinion_firehose_get_nb(pinion_firehose* firehose, unsigned from, uint64_t source, void* target,
                           size_t bytes, pinion_firehose_handle* handle) {
  const pinion_firehose_piece piece = piece_of(target, source, bytes);
  return start("pinion_firehose_get_nb", firehose, from, PartKind::get, &piece, 1, handle);
}

int pinion_firehose_test(pinion_firehose* firehose, pinion_firehose_handle* handle) {
  const char* const name = "pinion_firehose_test";
  if (!is_usable(firehose)) return bad_firehose(name, firehose);
  if (!handle) return fail(Error::make(EINVAL, "%s: the handle is NULL", name));
  Call* const call = call_of(*handle);
  if (call && !call->is_done()) Job::of(firehose)->progress();
  if (call && !call->is_done()) return fail(Error::make(EAGAIN, "%s: it is under way", name));
  return wait_for(name, *Job::of(firehose), *handle);
}

int pinion_firehose_wait(pinion_firehose* firehose, pinion_firehose_handle* handle) {
  const char* const name = "pinion_firehose_wait";
  if (!is_usable(firehose)) return bad_firehose(name, firehose);
  if (!handle) return fail(Error::make(EINVAL, "%s: the handle is NULL", name));
  return wait_for(name, *Job::of(firehose), *handle);
}

int pinion_firehose_put_nbi(pinion_firehose* firehose, unsigned to, uint64_t target, const void* source,
                            size_t bytes) {
  return start_implicit("pinion_firehose_put_nbi", firehose, to, PartKind::put,
                        piece_of(source, target, bytes));
}

int pinion_firehose_get_nbi(pinion_firehose* firehose, unsigned from, uint64_t source, void* target,
                            size_t bytes) {
  return start_implicit("pinion_firehose_get_nbi", firehose, from, PartKind::get,
                        piece_of(target, source, bytes));
}

int pinion_firehose_fence(pinion_firehose* firehose) {
  const char* const name = "pinion_firehose_fence";
  if (const int code = check_waiting(name, firehose)) return code;
  return guarded(name, [&] { return fence_of(name, *Job::of(firehose)); });
}

int pinion_firehose_quiet(pinion_firehose* firehose) {
  const char* const name = "pinion_firehose_quiet";
  if (const int code = check_waiting(name, firehose)) return code;
  return guarded(name, [&] {
    Job& job = *Job::of(firehose);
    job.until([&] { return job.calls().all_done(); });
    return fence_of(name, job);
  });
}

int pinion_firehose_put_v(pinion_firehose* firehose, unsigned to, const struct pinion_firehose_piece* pieces,
                          size_t count, pinion_firehose_handle* handle) {
  return start("pinion_firehose_put_v", firehose, to, PartKind::put, pieces, count, handle);
}

int pinion_firehose_get_v(pinion_firehose* firehose, unsigned from,
                          const struct pinion_firehose_piece* pieces, size_t count,
                          pinion_firehose_handle* handle) {
  return start("pinion_firehose_get_v", firehose, from, PartKind::get, pieces, count, handle);
}

// ---- atomics

int pinion_firehose_atomic(pinion_firehose* firehose, unsigned to, uint64_t target, size_t bytes,
                           enum pinion_firehose_operation operation, uint64_t operand, uint64_t compare,
                           uint64_t* old) {
  const char* const name = "pinion_firehose_atomic";
  std::uint64_t unasked = 0;
  if (!old) old = &unasked;
  if (const int code = check(name, firehose, to, target, old, bytes)) return code;
  if (const int code = check_may_wait(name)) return code;
  if ((bytes != 4 && bytes != 8) || target % bytes != 0)
    return fail(Error::make(EINVAL, "%s: %zu bytes at %#llx: valid are words of 4 or 8, aligned", name, bytes,
                            static_cast<unsigned long long>(target)));
  if (operation < PINION_FIREHOSE_FETCH || operation > PINION_FIREHOSE_COMPARE_SWAP)
    return fail(Error::make(EINVAL, "%s: there is no operation %d", name, static_cast<int>(operation)));
  return guarded(name, [&] {
    Job& job = *Job::of(firehose);
    const auto call = std::make_unique<Call>(to);
    job.calls().count(*call);
    job.calls().start_atomic(*call, target, bytes, operation, operand, compare, old);
    job.calls().launched(*call);
    job.until([&] { return call->is_done(); });
    return failed(name, to, call->error.load(std::memory_order_relaxed));
  });
}

// ---- active messages, and together

size_t pinion_firehose_max_message(const pinion_firehose* firehose) {
  return firehose ? Job::of(firehose)->max_message() : 0;
}

int pinion_firehose_send(pinion_firehose* firehose, unsigned to, unsigned handler, const void* payload,
                         size_t bytes) {
  const char* const name = "pinion_firehose_send";
  if (const int code = check(name, firehose, to, 1, payload, bytes)) return code;
  if (handler >= PINION_FIREHOSE_HANDLERS)
    return fail(Error::make(EINVAL, "%s: there is no handler %u; valid are 0 to %d", name, handler,
                            PINION_FIREHOSE_HANDLERS - 1));
  if (bytes > Job::of(firehose)->max_message())
    return fail(Error::make(EMSGSIZE, "%s: %zu bytes are more than a message takes (%zu)", name, bytes,
                            Job::of(firehose)->max_message()));
  return guarded(name, [&] {
    const Error error = Job::of(firehose)->send(to, handler, payload, bytes);
    return error ? fail(error) : 0;
  });
}

int pinion_firehose_barrier(pinion_firehose* firehose) {
  const char* const name = "pinion_firehose_barrier";
  if (const int code = check_waiting(name, firehose)) return code;
  return guarded(name, [&] {
    if (Job::of(firehose)->gather(nullptr, 0, nullptr)) return 0;
    return fail(Error::make(ECONNRESET, "%s: a process is gone", name));
  });
}

int pinion_firehose_exchange(pinion_firehose* firehose, const void* own, size_t bytes, void* all) {
  const char* const name = "pinion_firehose_exchange";
  if (const int code = check_waiting(name, firehose)) return code;
  if (bytes > firehose::Gathering::kMost || (bytes > 0 && (!own || !all)))
    return fail(Error::make(EINVAL, "%s: %zu bytes from %p to %p: valid are up to %zu, of memory", name,
                            bytes, own, all, firehose::Gathering::kMost));
  return guarded(name, [&] {
    if (Job::of(firehose)->gather(own, bytes, static_cast<char*>(all))) return 0;
    return fail(Error::make(ECONNRESET, "%s: a process is gone; its bytes are zero", name));
  });
}

int pinion_firehose_progress(pinion_firehose* firehose) {
  const char* const name = "pinion_firehose_progress";
  if (!is_usable(firehose)) return bad_firehose(name, firehose);
  return guarded(name, [&] {
    Job::of(firehose)->progress();
    return 0;
  });
}

// ---- counters

int pinion_firehose_statistics(const pinion_firehose* firehose,
                               struct pinion_firehose_statistics* statistics) {
  const char* const name = "pinion_firehose_statistics";
  if (!is_usable(firehose)) return bad_firehose(name, firehose);
  if (!statistics || statistics->size < sizeof statistics->size)
    return fail(Error::make(EINVAL, "%s: set the field `size` to the size of the structure, %zu", name,
                            sizeof *statistics));
  struct pinion_firehose_statistics values {};
  Job::of(firehose)->statistics(values);
  values.size = std::min(statistics->size, sizeof values);
  std::memcpy(statistics, &values, values.size);
  return 0;
}
