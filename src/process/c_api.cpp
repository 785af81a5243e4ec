// The public C API (include/pinion/pinion.h) over the engine: checks arguments, turns errors into errno
// values and this thread's text, and keeps exceptions inside. Owns only the handles of domains. Checks on the
// critical path are predicates; an Error is made only where one is returned.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

#include "base/process.h"
#include "base/version.h"
#include "device/fabric/fabric.h"
#include "device/operations.h"
#include "device/verbs/verbs.h"
#include "lease/engine_options.h"
#include "monitor/memory_events.h"
#include "pinion/pinion.h"
#include "process/c_api_inside.h"
#include "process/engine.h"
#include "process/feed_libfabric.h"

using namespace pinion;

namespace {

constinit thread_local Error t_last_error;

// ---- leases ----

/// The contents of a lease, in the caller's memory.
struct LeaseBody {
  static constexpr std::uint64_t kOut = 0x6573'6165'4c6e'6950;  // "PinLease"
  std::uint64_t mark;                                           ///< kOut until the release
  LeasePath* leases;
  Transfer transfer;
};
static_assert(sizeof(LeaseBody) <= sizeof(pinion_lease) && alignof(LeaseBody) <= alignof(pinion_lease));
static_assert(std::is_trivially_copyable_v<LeaseBody> && std::is_trivially_destructible_v<LeaseBody>);

LeaseBody* body_of(pinion_lease* lease) { return std::launder(reinterpret_cast<LeaseBody*>(lease->opaque)); }
const LeaseBody* body_of(const pinion_lease* lease) {
  return std::launder(reinterpret_cast<const LeaseBody*>(lease->opaque));
}

bool is_out(const pinion_lease* lease) { return lease && body_of(lease)->mark == LeaseBody::kOut; }

[[gnu::cold]] int bad_lease(const char* call, const pinion_lease* lease) {
  return fail(lease ? Error::make(EINVAL, "%s: this is no lease, or it was released already", call)
                    : Error::make(EINVAL, "%s: the lease is NULL", call));
}

// ---- requests ----

[[gnu::always_inline]] inline bool is_request(const pinion_domain* domain, const void* address,
                                              std::size_t bytes, unsigned access, const pinion_lease* lease) {
  return domain && lease && is_range(address, bytes) && access <= static_cast<unsigned>(Access::all) &&
         domain->leases == LeasePath::running();
}

[[gnu::cold]] int bad_request(const char* call, const pinion_domain* domain, const void* address,
                              std::size_t bytes, unsigned access, const pinion_lease* lease) {
  if (!domain) return fail(Error::make(EINVAL, "%s: the domain is NULL", call));
  if (!lease) return fail(Error::make(EINVAL, "%s: there is no place for the lease (NULL)", call));
  if (!is_range(address, bytes)) return bad_range(call, address, bytes);
  if (access > static_cast<unsigned>(Access::all))
    return fail(
        Error::make(EINVAL,
                    "%s: access %#x has unknown flags; valid: PINION_ACCESS_READ, PINION_ACCESS_WRITE, "
                    "PINION_ACCESS_REMOTE_READ, PINION_ACCESS_REMOTE_WRITE",
                    call, access));
  return not_running(call, domain);
}

}  // namespace

int pinion::set_last_error(const Error& error) {
  t_last_error = error;
  return error.code;
}

int pinion::domain_number(const pinion_domain* domain) { return domain->number; }

int pinion::bad_range(const char* call, const void* address, std::size_t bytes) {
  if (!address || bytes == 0)
    return fail(Error::make(EINVAL, "%s: the range is empty (address %p, %zu bytes)", call, address, bytes));
  return fail(Error::make(EINVAL, "%s: %zu bytes from %p reach beyond the end of the address space", call,
                          bytes, address));
}

int pinion::not_running(const char* call, const pinion_domain* domain) {
  if (domain && domain->leases->process() != ::getpid())
    return fail(
        Error::make(ESHUTDOWN,
                    "%s: this process was forked from the one that opened the domain, whose registrations "
                    "do not hold here: call pinion_start and open domains of its own",
                    call));
  return fail(Error::make(ESHUTDOWN, "%s: Pinion does not run (any more): call pinion_start%s", call,
                          domain ? " and open the domain again" : " first"));
}

int pinion::no_context(const char* call) {
  return fail(Error::make(ENOMEM, "%s: no memory for Pinion's state of a thread", call));
}

// ---- the library ----

const char* pinion_version() { return PINION_VERSION; }

const char* pinion_last_error() { return t_last_error.message; }

int pinion_start(const char* text) {
  return guarded("pinion_start", [&] {
    Options options;
    if (text) {
      if (Error error = parse_options(options, text)) return fail(error);
    }
    // The user of the program has the last word.
    if (Error error = options_from_environment(options)) return fail(error);
    if (options.off)
      return fail(Error::make(
          ECANCELED,
          "Pinion is switched off (PINION=off, or option except): transfer without registration cache"));
    if (Error error = Engine::join(options, job_place(), text != nullptr)) return fail(error);
    return 0;
  });
}

int pinion_stop() {
  return guarded("pinion_stop", [] {
    const Error error = Engine::leave();
    return error ? fail(error) : 0;
  });
}

// ---- domains ----

namespace {

/// `open(Engine&, Error&)` returns the number of an open domain of the engine.
template <class Open>
int open_domain(const char* call, pinion_domain** domain, Open&& open) {
  if (!domain) return fail(Error::make(EINVAL, "%s: there is no place for the domain (NULL)", call));
  *domain = nullptr;
  Engine* engine = Engine::running();
  if (!engine) return not_running(call, nullptr);
  return guarded(call, [&] {
    auto opened = std::make_unique<pinion_domain>();
    Error error;
    opened->engine = engine;
    opened->leases = &engine->lease_path();
    opened->number = open(*engine, error);
    if (error) return fail(error);
    opened->before = engine->counters().of(opened->number);
    opened->ahead_before = engine->counters().registrations_ahead(opened->number);
    *domain = opened.release();
    return 0;
  });
}

}  // namespace

int pinion_domain_open(const char* device, const char* nic, pinion_domain** domain) {
  return open_domain("pinion_domain_open", domain, [&](Engine& engine, Error& error) {
    // The caller registers with Pinion: `auto`, which leaves registering to libraries, means `pin` here.
    const std::string name = device ? device : engine.options().device;
    return engine.domains().open(name == kAutoDevice ? "pin" : name, nic ? nic : engine.options().nic, error);
  });
}

int pinion_domain_open_pd(struct ibv_pd* pd, pinion_domain** domain) {
  return open_domain("pinion_domain_open_pd", domain, [&](Engine& engine, Error& error) {
    if (!pd) {
      error = Error::make(EINVAL, "pinion_domain_open_pd: the protection domain is NULL");
      return -1;
    }
    VerbsDeviceResult made = make_verbs_device(pd);
    error = made.error;
    return error ? -1 : engine.domains().borrow(std::move(made.device), error);
  });
}

int pinion_domain_open_operations(const struct pinion_device_operations* operations, pinion_domain** domain) {
  return open_domain("pinion_domain_open_operations", domain, [&](Engine& engine, Error& error) {
    if (!operations) {
      error = Error::make(EINVAL, "pinion_domain_open_operations: the operations are NULL");
      return -1;
    }
    OperationsDeviceResult made = make_operations_device(*operations);
    error = made.error;
    return error ? -1 : engine.domains().borrow(std::move(made.device), error);
  });
}

int pinion_domain_open_fabric(struct fid_domain* fabric_domain, const struct fi_info* info,
                              struct fid_ep* endpoint, pinion_domain** domain) {
  return open_domain("pinion_domain_open_fabric", domain, [&](Engine& engine, Error& error) {
    if (!fabric_domain || !info) {
      error = Error::make(EINVAL, "pinion_domain_open_fabric: the %s is NULL",
                          fabric_domain ? "fi_info" : "domain of libfabric");
      return -1;
    }
    FabricDeviceResult made = make_fabric_device(fabric_domain, info, endpoint);
    error = made.error;
    return error ? -1 : engine.domains().borrow(std::move(made.device), error);
  });
}

int pinion_domain_close(pinion_domain* domain) {
  if (!domain) return fail(Error::make(EINVAL, "pinion_domain_close: the domain is NULL"));
  if (domain->preparations.load() > 0 && domain->leases->process() == ::getpid())
    return fail(Error::make(EBUSY, "pinion_domain_close: memory of the domain is prepared: end that first"));
  // After the end of the run, and in a forked child, only the handle is left.
  if (domain->engine == Engine::running()) {
    if (Error error = domain->engine->domains().close(domain->number)) return fail(error);
  }
  delete domain;
  return 0;
}

// ---- leases ----

namespace {

using Quick = LeasePath::Quick;

// An optimised call of these at a function's end is a jump. So the caller is the same for both, by whose
// frame call sites are known.
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define PINION_REST [[gnu::noinline]]
#else
#define PINION_REST [[gnu::always_inline]] inline
#endif

void hand_out(LeaseBody& body, LeasePath& leases) {
  body.leases = &leases;
  body.mark = LeaseBody::kOut;
}

/// The first look at a request, by an acquire that leaves no record. False for a wrong one, and maybe for
/// others.
[[gnu::always_inline]] inline bool is_quick(const pinion_domain* domain, unsigned access,
                                            const pinion_lease* lease, const ThreadContext* thread) {
  if (!domain || !lease || !thread) return false;
  return access <= static_cast<unsigned>(Access::all) && domain->leases == LeasePath::running();
}

PINION_REST int acquire_otherwise(pinion_domain* domain, const void* address, std::size_t bytes,
                                  unsigned access, pinion_lease* lease) {
  const EntryFrame entry = EntryFrame::here();
  if (lease) body_of(lease)->mark = 0;
  if (!is_request(domain, address, bytes, access, lease)) [[unlikely]]
    return bad_request("pinion_acquire", domain, address, bytes, access, lease);
  ThreadContext* thread = this_thread();
  if (!thread) [[unlikely]]
    return no_context("pinion_acquire");
  return guarded("pinion_acquire", [&] {
    LeaseBody& body = *body_of(lease);
    LeasePath& leases = *domain->leases;
    const Range range = Range::of(address, bytes);
    const auto rights = static_cast<Access>(access);
    const auto call = [&] {
      const Ticks now = ticks_now();
      return CallPoint{now, thread->sites->capture(entry), CallKind::api};
    };
    if (!leases.lease(*thread, domain->number, call, range, rights, body.transfer, Refusal::report,
                      &t_last_error)) [[unlikely]]
      return t_last_error.code;
    hand_out(body, leases);
    return 0;
  });
}

PINION_REST int acquire_refused(pinion_domain* domain, const void* address, std::size_t bytes,
                                unsigned access, pinion_lease* lease) {
  const int failed = guarded("pinion_acquire", [&] {
    domain->leases->end_refused(*known_thread(), domain->number, reinterpret_cast<Address>(address),
                                body_of(lease)->transfer);
    return 0;
  });
  return failed != 0 ? failed : acquire_otherwise(domain, address, bytes, access, lease);
}

/// Acquires a segment of the arena, or a region that threads share.
PINION_REST int acquire_counted(pinion_domain* domain, const void* address, std::size_t bytes,
                                unsigned access, pinion_lease* lease, ThreadContext* thread) {
  LeasePath& leases = *domain->leases;
  LeaseBody& body = *body_of(lease);
  const Quick quick = leases.lease_counted(*thread, domain->number, Range::of(address, bytes),
                                           static_cast<Access>(access), body.transfer);
  if (quick == Quick::other) return acquire_otherwise(domain, address, bytes, access, lease);
  if (quick == Quick::rest) [[unlikely]]
    return acquire_refused(domain, address, bytes, access, lease);
  hand_out(body, leases);
  return 0;
}

PINION_REST int release_otherwise(pinion_lease* lease) {
  if (!is_out(lease)) [[unlikely]]
    return bad_lease("pinion_release", lease);
  LeaseBody& body = *body_of(lease);
  return guarded("pinion_release", [&] {
    if (body.leases != LeasePath::running()) [[unlikely]] {
      body.mark = 0;
      body.leases->release_after_run(body.transfer);
      return 0;
    }
    ThreadContext* thread = this_thread();
    if (!thread) [[unlikely]]
      return no_context("pinion_release");
    body.mark = 0;
    body.leases->release(*thread, body.transfer);
    return 0;
  });
}

[[gnu::noinline, gnu::cold]] int end_release(pinion_lease* lease) {
  return guarded("pinion_release", [&] {
    body_of(lease)->leases->end_release(this_thread(), body_of(lease)->transfer);
    return 0;
  });
}

PINION_REST int release_counted(pinion_lease* lease) {
  ThreadContext* const thread = known_thread();
  if (!thread) [[unlikely]]
    return release_otherwise(lease);
  LeaseBody& body = *body_of(lease);
  body.mark = 0;
  if (LeasePath::release_counted(*thread, body.transfer) == Quick::rest) [[unlikely]]
    return end_release(lease);
  return 0;
}

}  // namespace

// Ordinary hits are served here, without a frame: all further work is a jump.

int pinion_acquire(pinion_domain* domain, const void* address, size_t bytes, unsigned access,
                   pinion_lease* lease) {
  ThreadContext* const thread = known_thread();
  const Range range = Range::of(address, bytes);
  if (!is_quick(domain, access, lease, thread)) [[unlikely]]
    return acquire_otherwise(domain, address, bytes, access, lease);
  LeasePath& leases = *domain->leases;
  LeaseBody& body = *body_of(lease);
  const Quick quick =
      leases.lease_quickly(*thread, domain->number, range, static_cast<Access>(access), body.transfer);
  if (quick == Quick::other) return acquire_otherwise(domain, address, bytes, access, lease);
  if (quick == Quick::counted) [[unlikely]]
    return acquire_counted(domain, address, bytes, access, lease, thread);
  if (quick == Quick::rest) [[unlikely]]
    return acquire_refused(domain, address, bytes, access, lease);
  hand_out(body, leases);
  return 0;
}

int pinion_try_acquire(pinion_domain* domain, const void* address, size_t bytes, unsigned access,
                       pinion_lease* lease) {
  const EntryFrame entry = EntryFrame::here();
  if (lease) body_of(lease)->mark = 0;
  if (!is_request(domain, address, bytes, access, lease)) [[unlikely]]
    return bad_request("pinion_try_acquire", domain, address, bytes, access, lease);
  ThreadContext* thread = this_thread();
  if (!thread) [[unlikely]]
    return no_context("pinion_try_acquire");
  LeaseBody& body = *body_of(lease);
  LeasePath& leases = *domain->leases;
  const Range range = Range::of(address, bytes);
  const auto rights = static_cast<Access>(access);
  const auto call = [&] {
    const Ticks now = ticks_now();
    return CallPoint{now, thread->sites->capture(entry), CallKind::api};
  };
  if (!leases.try_lease(*thread, domain->number, call, range, rights, body.transfer)) {
    // This is an ordinary outcome, so formatting is skipped.
    static constexpr char kText[] =
        "pinion_try_acquire: the memory is not registered; pinion_acquire registers it";
    t_last_error.code = EAGAIN;
    std::memcpy(t_last_error.message, kText, sizeof kText);
    return EAGAIN;
  }
  hand_out(body, leases);
  return 0;
}

int pinion_release(pinion_lease* lease) {
  if (!is_out(lease)) [[unlikely]]
    return release_otherwise(lease);
  LeaseBody& body = *body_of(lease);
  LeasePath& leases = *body.leases;
  if (&leases != LeasePath::running()) [[unlikely]]
    return release_otherwise(lease);
  const Quick quick = leases.release_quickly(body.transfer);
  if (quick == Quick::counted) return release_counted(lease);
  if (quick == Quick::other) return release_otherwise(lease);
  body.mark = 0;
  if (quick == Quick::rest) [[unlikely]]
    return end_release(lease);
  return 0;
}

int pinion_lease_keys(const pinion_lease* lease, struct pinion_keys* keys) {
  if (!is_out(lease)) return bad_lease("pinion_lease_keys", lease);
  if (!is_sized(keys)) return bad_struct("pinion_lease_keys", keys);
  const LeaseBody& body = *body_of(lease);
  if (body.leases != LeasePath::running() && body.leases->process() != ::getpid())
    return fail(Error::make(ESHUTDOWN,
                            "pinion_lease_keys: the lease is of the process that this one was forked "
                            "from, whose registrations do not hold here"));
  // Under a lease a region does not change.
  const Region* region = body.transfer.region();
  if (!region)
    return fail(Error::make(ENODATA,
                            "pinion_lease_keys: retention `observe` registers nothing: transfer without "
                            "registration, and release the lease when that is done"));
  const Range range = region->range();
  return fill(keys,
              pinion_keys{.size = 0,
                          .handle = region->key.handle,
                          .lkey = region->key.lkey,
                          .rkey = static_cast<std::uint32_t>(region->key.remote_key),
                          .address = range.begin,
                          .bytes = range.bytes(),
                          .access = static_cast<unsigned>(region->access.load(std::memory_order_relaxed)),
                          .reserved = 0,
                          .descriptor = region->key.descriptor,
                          .remote_key = region->key.remote_key,
                          .remote_base = region->key.remote_base,
                          .raw_key = region->key.raw_key,
                          .raw_key_bytes = region->key.raw_key_bytes,
                          .endpoint = region->key.endpoint});
}

// ---- memory events ----

int pinion_memory_begin(const void* address, size_t bytes) {
  if (!is_range(address, bytes)) return bad_range("pinion_memory_begin", address, bytes);
  memory_events::begin({Range::of(address, bytes)});
  return 0;
}

int pinion_memory_end(const void* address, size_t bytes) {
  if (!is_range(address, bytes)) return bad_range("pinion_memory_end", address, bytes);
  memory_events::end(Range::of(address, bytes));
  return 0;
}

int pinion_feed_libfabric() {
  return guarded("pinion_feed_libfabric", [] {
    const Error error = feed_libfabric(nullptr);
    return error ? fail(error) : 0;
  });
}
