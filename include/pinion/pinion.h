/*
 * Pinion: a registration cache for RDMA and other DMA engines that is right about munmap, bounded, and
 * predicts.
 *
 * C99 and C++. The interface is stable: symbols are versioned (PINION_0.1 to PINION_0.4), structures have
 * their size in their first field, everything else is opaque. docs/api.md is made of this header.
 *
 *   - Calls that return int return 0 or an errno value; pinion_last_error() then returns one line with the
 *     failure, the limit, the need and the cure.
 *   - Every call may be made by any thread at any time between pinion_start() and pinion_stop(). Only
 *     pinion_memory_begin() and pinion_memory_end() may be called from a signal handler, or from within
 *     malloc.
 *   - A forked child begins without registrations, and Pinion is stopped in it: it may start anew. Leases and
 *     domains of the parent give ESHUTDOWN there; to release or close them does nothing.
 *   - Any call that allocates may return ENOMEM. errno stays as it is.
 *   - Addresses and sizes are in bytes, of any alignment.
 */
#ifndef PINION_PINION_H
#define PINION_PINION_H

#include <stddef.h>
#include <stdint.h>

#define PINION_VERSION_MAJOR 0
#define PINION_VERSION_MINOR 2
#define PINION_VERSION_PATCH 0

#if defined(__GNUC__)
#define PINION_CHECKED __attribute__((warn_unused_result))
#else
#define PINION_CHECKED
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The library ---- */

/* The version of the library that runs, "major.minor.patch". */
const char* pinion_version(void);

/* The text of this thread's last failed call; empty when none has failed. Valid until its next one fails. */
const char* pinion_last_error(void);

/*
 * Starts Pinion in this process, or shares the engine that runs already. `options` is "name=value,..." as in
 * the environment variable PINION, which overrides it; NULL: the environment alone.
 *
 * EINVAL: an unknown option or a bad value. ECANCELED: switched off by the user (PINION=off, `except`): go on
 * without cache. EBUSY: another part of the process has started Pinion with other options; NULL shares it.
 * EAGAIN: there is no thread for the helper. After an error there is nothing to stop.
 */
int pinion_start(const char* options) PINION_CHECKED;

/*
 * Undoes one pinion_start(). The last one lets all idle registrations go, completes the log and ends the
 * helper thread. Leases that are out may be released later. EINVAL: there was no start to undo.
 */
int pinion_stop(void);

/* ---- Domains ---- */

/* A device and its protection domain, with a registration cache of its own. */
typedef struct pinion_domain pinion_domain;

/*
 * Opens a domain. `device` and `nic` are names as for the options of these names; NULL: the options' own. Its
 * protection domain is its own, so the keys are for nobody's queue pairs but those of borrowed devices,
 * below.
 *
 * EINVAL: an unknown name, which the text lists. ENOSPC: a process can have 16 domains. ESHUTDOWN: Pinion
 * does not run. The next three calls have the last two errors as well.
 */
int pinion_domain_open(const char* device, const char* nic, pinion_domain** domain) PINION_CHECKED;

/*
 * Lets all idle registrations of the domain go and closes it; EBUSY (it stays open) while leases or
 * preparations are out. Also closes the domain of a run that has ended.
 */
int pinion_domain_close(pinion_domain* domain);

/* ---- Borrowed devices (PINION_0.2) ---- */

struct ibv_pd;

/*
 * Opens a domain on a protection domain of the caller's own: the keys of its leases are for the caller's
 * queue pairs. Uses the libibverbs that the process has loaded; device and protection domain stay the
 * caller's to close.
 *
 * The protection domain, or the memory that the operations below need, outlives the domain: until
 * pinion_domain_close returns 0, or pinion_stop has ended the run and its last lease is released.
 *
 * EINVAL: `pd` is NULL. ENOENT: no libibverbs.so.1 is loaded. Errors of the device are passed on.
 */
int pinion_domain_open_pd(struct ibv_pd* pd, pinion_domain** domain) PINION_CHECKED;

/* A registration as the caller's device makes it. */
struct pinion_registration {
  size_t size;     /* in: how much of the structure Pinion reads; leave bytes beyond alone */
  uint64_t handle; /* the device's own name for it, for deregister_memory */
  uint32_t lkey;
  uint32_t raw_key_bytes;
  void* descriptor; /* for local use, as fi_mr_desc */
  uint64_t remote_key;
  uint64_t remote_base; /* in: the address, as peers use it; set it to 0 where peers use offsets */
  const void* raw_key;  /* where a remote key is more than 64 bits; the device's, until deregister_memory */
  void* endpoint;       /* that the registration is bound to, with PINION_DEVICE_NEEDS_ENDPOINT */
  uint64_t entries;     /* translation entries that it takes; 0: not known */
};

/* Properties of the device; combined by |. */
enum pinion_device_flags {
  PINION_DEVICE_PRIVATE = 1,      /* no peer can get a key: Pinion may ask for more rights than its callers */
  PINION_DEVICE_PINS_NOTHING = 2, /* memory need not be present; otherwise Pinion faults it in before */
  PINION_DEVICE_NEEDS_ENDPOINT = 4,     /* registrations require an endpoint */
  PINION_DEVICE_HIDES_FROM_CHILDREN = 8 /* registered memory may be missing in a forked child */
};

#define PINION_DEVICE_VERSION 1

/*
 * Operations by which the caller registers memory itself. Set unused fields to zero.
 *
 * Both return 0 or an errno value (its negative means the same). They are called concurrently, by threads
 * that acquire and release and by Pinion's helper thread. Signals are then blocked, and Pinion holds no lock.
 * They are never called from a hook, a signal handler, or a forked child of the process that opened the
 * domain. They may allocate and block. Of Pinion's functions they may call only pinion_memory_begin and
 * pinion_memory_end. They return: a jump out of them leaves Pinion's locks held, and an exception ends the
 * process where the helper calls them. (From an acquire or a release it reaches that call's caller; nothing
 * is registered then.)
 */
struct pinion_device_operations {
  size_t size;      /* sizeof(struct pinion_device_operations) */
  unsigned version; /* PINION_DEVICE_VERSION */
  unsigned flags;   /* of pinion_device_flags */
  void* context;    /* handed to the operations */
  /*
   * Registers whole pages with the rights `access` (of pinion_access) and fills in `registration`. EFAULT:
   * the memory is unmapped or forbids the access; ENOSPC: the device is full; ENOMEM: the process has reached
   * a limit of the system. For the last two Pinion lets idle registrations go and tries again.
   */
  int (*register_memory)(void* context, void* address, size_t bytes, unsigned access,
                         struct pinion_registration* registration);
  /* The memory may be unmapped already. After an error the registration stays, and Pinion tries again. */
  int (*deregister_memory)(void* context, uint64_t handle);
  uint64_t max_region_bytes; /* most bytes of one registration; 0: no limit */
};

/*
 * Opens a domain on the caller's operations; the structure is copied. EINVAL: it is short, of an unknown
 * version, has unknown flags or lacks an operation.
 */
int pinion_domain_open_operations(const struct pinion_device_operations* operations,
                                  pinion_domain** domain) PINION_CHECKED;

struct fi_info;
struct fid_domain;
struct fid_ep;

/*
 * Opens a domain on a libfabric domain of the caller's own (PINION_0.3), which was opened with `info`.
 * Registrations are bound to `endpoint` where the provider requires it (FI_MR_ENDPOINT); elsewhere it may be
 * NULL. Domain and endpoint outlive this domain as a protection domain does; `info` may be freed. Where keys
 * are the application's to choose, Pinion's count down from the greatest.
 *
 * EINVAL: NULL, or an endpoint is missing. ENOTSUP: the domain has FI_THREAD_DOMAIN, or Pinion was built
 * without libfabric.
 */
int pinion_domain_open_fabric(struct fid_domain* fabric_domain, const struct fi_info* info,
                              struct fid_ep* endpoint, pinion_domain** domain) PINION_CHECKED;

/* ---- Leases ---- */

/* Rights of the device, and of peers through it; combined by |. */
enum pinion_access {
  PINION_ACCESS_READ = 0,  /* the device reads: the source of a send. Always included. */
  PINION_ACCESS_WRITE = 1, /* the device writes: the target of a receive */
  PINION_ACCESS_REMOTE_READ = 2,
  PINION_ACCESS_REMOTE_WRITE = 4
};

/*
 * The right to use a registration, from an acquire to its release: the memory stays registered that long.
 * Kept by the caller, on the stack or in a request; it may be moved as plain memory, and is released once.
 */
typedef struct pinion_lease {
  uint64_t opaque[20];
} pinion_lease;

/* An empty lease: release leaves one behind. */
/* clang-format off */
#define PINION_LEASE_INIT {{0}}
/* clang-format on */

/*
 * Leases memory, and registers it first where needed: whole pages around it. Waits while another thread
 * registers it. A registration that has the range and the rights is a hit, which takes no lock. Where peers
 * can get keys, the rights are exactly those of the request: more rights on the same memory replace the
 * registration, so ask for the sum of those needed in turn. Unmapping memory under a lease is allowed: the
 * transfer goes on with its pages, and new leases are refused.
 *
 * On failure it grants no lease: transfer without registration (bounce buffer, smaller pieces). EINVAL: NULL,
 * an empty range, one beyond the address space, unknown rights. ENOMEM: the limit, with everything in use, or
 * the system pins no more. EFBIG, ENOSPC: the device's bounds. EFAULT: the memory is not there, or forbids
 * the access. EPERM: the process may not pin. EAGAIN: the memory is being unmapped right now. ESHUTDOWN:
 * Pinion does not run.
 */
int pinion_acquire(pinion_domain* domain, const void* address, size_t bytes, unsigned access,
                   pinion_lease* lease) PINION_CHECKED;

/* A lease if the memory is registered already, else EAGAIN. Never registers, never waits. Counts if it hits.
 */
int pinion_try_acquire(pinion_domain* domain, const void* address, size_t bytes, unsigned access,
                       pinion_lease* lease) PINION_CHECKED;

/*
 * Returns a lease, from any thread, also after pinion_stop(). Retention decides whether the memory stays
 * registered. EINVAL: this is no lease, or it was released.
 */
int pinion_release(pinion_lease* lease);

/* The values that the device needs to transfer. */
struct pinion_keys {
  size_t size;     /* in: sizeof(struct pinion_keys) */
  uint64_t handle; /* the registration as its device knows it */
  uint32_t lkey;
  uint32_t rkey;
  uint64_t address; /* of the registered range, which contains the leased one */
  uint64_t bytes;
  unsigned access; /* granted: at least those requested */
  unsigned reserved;
  /* These exist since 0.2. */
  void* descriptor;     /* fi_mr_desc, or the struct ibv_mr that memory windows are bound to; else NULL */
  uint64_t remote_key;  /* rkey, or the 64 bits of libfabric's key */
  uint64_t remote_base; /* peers reach address a at remote_base + (a - address) */
  const void* raw_key;  /* for peers, where a key is more than 64 bits; else NULL. The device's. */
  uint64_t raw_key_bytes;
  void* endpoint; /* that the registration is bound to; else NULL */
};

/*
 * The keys of a lease, valid until its release. ENODATA: retention `observe` registers nothing: transfer by
 * other means, and release the lease when that is done. EINVAL: no lease, or `size` is not set.
 */
int pinion_lease_keys(const pinion_lease* lease, struct pinion_keys* keys) PINION_CHECKED;

/* ---- Preparing memory (PINION_0.3) ---- */

struct pinion_range {
  const void* address;
  size_t bytes;
};

/* Options of a preparation; 0 selects a default. */
struct pinion_prepare_options {
  size_t size;        /* in: sizeof(struct pinion_prepare_options) */
  unsigned access;    /* of pinion_access, for the transfers to come */
  unsigned hugepages; /* other than 0: advise the kernel to use them (MADV_HUGEPAGE) */
  unsigned threads;   /* at most, and at first; 0: as many as help, of the cores that the process may use */
  unsigned reserved;
  uint64_t piece_bytes; /* of one registration, at most; 0: 16 MiB, larger while that is faster */
};

typedef struct pinion_preparation pinion_preparation;

/*
 * Begins to fault in and register memory ahead of its first transfer, by threads of Pinion's, in short steps
 * and behind transfers that wait. Returns at once. Prepared memory stays registered until
 * pinion_preparation_end(); a failure or a cancel rolls all of it back. Ranges longer than `piece_bytes` are
 * cut at multiples of it, and a transfer across a cut needs a registration of its own.
 *
 * EINVAL: NULL, no or empty ranges, unknown rights. ENOMEM: more than the limit, looked at first. EAGAIN: no
 * thread can be made. ECANCELED: a user has stopped Pinion in this process. ESHUTDOWN: Pinion does not run.
 */
int pinion_prepare(pinion_domain* domain, const struct pinion_range* ranges, size_t count,
                   const struct pinion_prepare_options* options,
                   pinion_preparation** preparation) PINION_CHECKED;

struct pinion_preparation_state {
  size_t size; /* in: sizeof(struct pinion_preparation_state) */
  int error;   /* 0: ready; EINPROGRESS: under way; else why it was rolled back */
  int reserved;
  uint64_t bytes;          /* to prepare: whole pages */
  uint64_t prepared_bytes; /* of these, registered */
  uint64_t elapsed_ns;
  uint64_t left_ns; /* an estimate; UINT64_MAX: unknown */
};

int pinion_preparation_poll(const pinion_preparation* preparation, struct pinion_preparation_state* state);

/*
 * Waits for its end, `timeout_ns` at most (UINT64_MAX: as long as it takes): 0 when all is ready. ETIMEDOUT;
 * ECANCELED: cancelled, or the run ended; else as of pinion_acquire().
 */
int pinion_preparation_wait(const pinion_preparation* preparation, uint64_t timeout_ns) PINION_CHECKED;

/* Cancels it, and returns at once; one that is ready stays so. */
int pinion_preparation_cancel(pinion_preparation* preparation);

/*
 * Cancels it if it is under way, returns its leases, and frees the handle. Until the next pinion_prepare(),
 * which may use the handle again, calls with an ended one return EINVAL.
 */
int pinion_preparation_end(pinion_preparation* preparation);

/* ---- Gather lists (PINION_0.4) ---- */

/*
 * Costs and limits of a device's transfers from (or to) lists of elements. Filled in by the caller, or by
 * pinion_gather_measure(). Times in ns, of finite values from 0 on.
 */
struct pinion_gather_costs {
  size_t size;              /* in: sizeof(struct pinion_gather_costs) */
  size_t max_elements;      /* of one request; 1 at least */
  size_t max_element_bytes; /* 0: no limit */
  size_t max_request_bytes; /* 0: no limit */
  double request_ns;        /* each further request of one element; like the next, beside its bytes */
  double elements_ns[8];    /* a request of 2, 4, 8, ..., 256 elements, beyond one of one element */
  double copied_piece_ns;   /* copying a piece, beside its bytes */
  double copied_byte_ns;    /* copying a byte */
  size_t packed_offset;     /* in a page: from where the device reads copied data fastest */
  double large_request_ns;  /* beyond request_ns, from 128 KiB a request on; below, in proportion */
};

/* An element of a plan, for the device's list. */
struct pinion_gather_element {
  const void* address; /* of the caller's memory, or in the packed buffer */
  size_t bytes;
  size_t first_piece; /* the piece of its first byte */
  size_t pieces;      /* copied into it, from first_piece on; 0: the device uses the caller's memory */
  size_t request;     /* the request that carries it: 0, 1, ... */
};

/*
 * Plans the cheapest transfer of pieces that follow each other at the other side: neighbours joined, an
 * element each, or copied into `packed`. The elements carry all bytes of the pieces in their order; pieces
 * may be empty or overlap. `packed` may be NULL: nothing is copied. Copies nothing itself.
 *
 * `*element_count`: in, the room in `elements`, enough if it is `count` and no limit cuts a piece; out, the
 * elements planned. ENOSPC: the room is short, and `*element_count` is what it takes. Allocates nothing;
 * needs no pinion_start(), and may be called from anywhere.
 */
int pinion_gather_plan(const struct pinion_gather_costs* costs, const struct pinion_range* pieces,
                       size_t count, void* packed, size_t packed_bytes,
                       struct pinion_gather_element* elements, size_t* element_count) PINION_CHECKED;

/* Copies into the packed buffer all that the plan put there: before a send or put. */
int pinion_gather_pack(const struct pinion_range* pieces, const struct pinion_gather_element* elements,
                       size_t element_count);
/* Copies it back into the pieces: after a receive or get. Of pieces that overlap, the last one remains. */
int pinion_gather_unpack(const struct pinion_range* pieces, const struct pinion_gather_element* elements,
                         size_t element_count);

/* A device, as pinion_gather_measure() tries it. */
struct pinion_gather_probe {
  size_t size;              /* in: sizeof(struct pinion_gather_probe) */
  size_t max_elements;      /* of one request */
  size_t max_element_bytes; /* 0: no limit */
  size_t max_request_bytes; /* 0: no limit */
  void* context;            /* handed to `transfer` */
  /*
   * Posts `requests` requests one after another, each of `elements` elements of `bytes` bytes. Each element
   * begins at `offset` in a page of its own. Waits for all, and returns the ns from the first post to the
   * last completion; negative: a transfer failed.
   */
  double (*transfer)(void* context, unsigned requests, unsigned elements, size_t bytes, size_t offset);
  /* The longest element that `transfer` can make. Below 512 KiB: large_request_ns stays 0 */
  size_t max_bytes;
};

/*
 * Measures the costs of a device, and of copying on this machine: a few hundred transfers of 8 bytes, and
 * some of 128 and 512 KiB, in 150 ms or little more. EIO: a transfer failed. Allocates memory of its own; not
 * from hooks.
 */
int pinion_gather_measure(const struct pinion_gather_probe* probe,
                          struct pinion_gather_costs* costs) PINION_CHECKED;

/* ---- Memory events ---- */

/*
 * Brackets around a change of memory that libc does not see: a driver's own unmapping, a raw system call. In
 * between, the range is refused; its earlier registrations are never used again. Both calls are made by the
 * same thread with the same range. They are free of allocation and blocking, and may be
 * made from hooks and signal handlers, also while Pinion is stopped. They nest; beyond 64 open at a time all
 * memory counts as changing. EINVAL: the range is empty, or beyond the address space.
 */
int pinion_memory_begin(const void* address, size_t bytes);
int pinion_memory_end(const void* address, size_t bytes);

/*
 * Makes Pinion the memory monitor of libfabric's own registration cache, in a process that has loaded
 * libfabric (1.14 or later): before it opens its first domain. Lasts as long as the process; may be called
 * again, and before pinion_start(). That cache lies outside of Pinion's limits.
 *
 * ENOENT: no libfabric is loaded. ENOSYS: it is too old, or Pinion was built without it. EBUSY: another
 * library has imported a monitor, or a cache is in use. ECANCELED: the user's choice. ENOTSUP: not all memory
 * events can be seen. After an error libfabric works as it does alone.
 */
int pinion_feed_libfabric(void) PINION_CHECKED;

/* ---- Limits in force, and counters ---- */

/* Limits of the process, for all its domains together. UINT64_MAX: no limit. */
struct pinion_limits {
  size_t size; /* in: sizeof(struct pinion_limits) */
  uint64_t bytes;
  uint64_t regions;
  uint64_t bytes_in_use;
  uint64_t regions_in_use;
  const char* bytes_from; /* the source of the limit of bytes; never freed */
};

/* EINVAL: `size` is not set; ESHUTDOWN: Pinion does not run. */
int pinion_limits(struct pinion_limits* limits);

/* Counters since the domain was opened, or of the whole process since Pinion started in it. Times in ns. */
struct pinion_statistics {
  size_t size;       /* in: sizeof(struct pinion_statistics) */
  uint64_t acquires; /* hits + waits + misses + bounced + observed */
  uint64_t hits;     /* found registered (a successful try_acquire is one) */
  uint64_t waits;    /* waited for another's registration */
  uint64_t misses;   /* registered by the acquiring thread */
  uint64_t bounced;  /* refused: not registered */
  uint64_t observed; /* retention `observe`: nothing was registered */
  uint64_t acquired_bytes;
  uint64_t bounced_bytes;
  uint64_t registrations;       /* by acquiring threads and by the helper */
  uint64_t registrations_ahead; /* of these, by the helper, off the critical path */
  uint64_t deregistrations;
  uint64_t registration_failures;
  uint64_t registered_bytes; /* now; pages are counted once, also where registrations overlap */
  uint64_t registered_peak_bytes;
  uint64_t regions;         /* now */
  uint64_t registration_ns; /* acquiring threads spent in the device */
  uint64_t wait_ns;         /* acquiring threads spent waiting, beyond that */
};

/* `domain` NULL: the process. While other threads transfer, the counters are of several instants. Errors as
   of pinion_limits(). */
int pinion_statistics(const pinion_domain* domain, struct pinion_statistics* statistics);

#ifdef __cplusplus
}
#endif

#endif
