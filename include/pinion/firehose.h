/*
 * Pinion firehose: one-sided puts and gets between the processes of a job, to any of their memory. No side
 * registers anything: each process lets its peers decide which of its memory is registered, within a bound.
 *
 * C99 and C++; library libpinion-firehose. Structures have their size in their first field.
 *
 *   - Calls that return int return 0 or an errno value; pinion_last_error() then returns one line about it.
 *   - Any thread may make any call between pinion_firehose_open() and pinion_firehose_close(). Open, close,
 *     barrier and exchange are collective: one thread of every process makes them, in the same order.
 *   - Peers' memory is named by its address there. Addresses and sizes are in bytes, of any alignment.
 *   - ECONNRESET: the peer is gone. EPERM: the memory is not exposed. EFAULT: it is not mapped there, or
 *     forbids the access. ENOMEM: this process is out of memory. None of these ends the job.
 *   - Local memory has to be mapped: a bad address is EFAULT or a fault, as the provider or a copy finds it.
 */
#ifndef PINION_FIREHOSE_H
#define PINION_FIREHOSE_H

#include <pinion/pinion.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pinion_firehose pinion_firehose;

/* ---- Joining ---- */

/* An active message from `from`. Runs on a thread that makes progress; may post operations, never waits. */
typedef void (*pinion_firehose_handler)(void* context, pinion_firehose* firehose, unsigned from,
                                        const void* payload, size_t bytes);

enum { PINION_FIREHOSE_HANDLERS = 16 };

/* Zero in every field but the first selects the defaults. */
struct pinion_firehose_options {
  size_t size;        /* in: sizeof(struct pinion_firehose_options) */
  unsigned process;   /* this one's number; with `processes` 0 the launcher's variables give both */
  unsigned processes; /* of the job */
  const char*
      directory;        /* where they meet: all see it, only the user may write there; NULL: the node's own */
  const char* provider; /* of libfabric; NULL: the best one */
  /* firehose (NULL), pin-everything, rendezvous, rendezvous-unpin, bounce: the strategies of the paper's
     table. The same in all processes. */
  const char* strategy;
  uint64_t memory;  /* M: bytes of this process that its peers may keep registered; 0: a part of the limit */
  uint64_t victims; /* MAXVICTIM: bytes beside it that stay registered unused; 0: a sixteenth of M */
  uint64_t bucket;  /* bytes, a power of two, whole pages; 0: chosen. All use the least of all processes'. */
  uint64_t recall_timeout_ns;          /* 0: 10 s. A peer that does not let go within it is cut off. */
  const struct pinion_range* segments; /* the memory exposed to peers; none: all of the address space */
  size_t segment_count;
  pinion_firehose_handler handlers[PINION_FIREHOSE_HANDLERS];
  void* handler_context;
  /* Of strategy firehose. The firehoses of a peer: `lending` (NULL), or `static`, the paper's: M / (bucket *
     (processes - 1)), and none is asked for ahead. The same in all processes. */
  const char* sharing;
  /* Of strategy firehose. Data of a small put or get travels with its miss: `on` (NULL); or `off`, as in the
     paper. */
  const char* rides;
};

int pinion_firehose_open(const struct pinion_firehose_options* options,
                         pinion_firehose** firehose) PINION_CHECKED;

/* Collective: ends once all processes that live have called it. Operations under way end first. */
int pinion_firehose_close(pinion_firehose* firehose);

unsigned pinion_firehose_process(const pinion_firehose* firehose);
unsigned pinion_firehose_processes(const pinion_firehose* firehose);

/* ---- Puts and gets ---- */

/* Return when the data is in place: for a put, in the peer's memory. */
int pinion_firehose_put(pinion_firehose* firehose, unsigned to, uint64_t target, const void* source,
                        size_t bytes) PINION_CHECKED;
int pinion_firehose_get(pinion_firehose* firehose, unsigned from, uint64_t source, void* target,
                        size_t bytes) PINION_CHECKED;

/* An operation under way; the caller keeps it, and the local memory, until test or wait has returned it done.
 */
typedef struct pinion_firehose_handle {
  uint64_t opaque[2];
} pinion_firehose_handle;

int pinion_firehose_put_nb(pinion_firehose* firehose, unsigned to, uint64_t target, const void* source,
                           size_t bytes, pinion_firehose_handle* handle) PINION_CHECKED;
int pinion_firehose_get_nb(pinion_firehose* firehose, unsigned from, uint64_t source, void* target,
                           size_t bytes, pinion_firehose_handle* handle) PINION_CHECKED;

/* 0: done; EAGAIN: under way; else why it failed. A handle that is done may be asked again. */
int pinion_firehose_test(pinion_firehose* firehose, pinion_firehose_handle* handle) PINION_CHECKED;
int pinion_firehose_wait(pinion_firehose* firehose, pinion_firehose_handle* handle) PINION_CHECKED;

/* Without handle: the next fence of the calling thread ends it, and returns the first error. */
int pinion_firehose_put_nbi(pinion_firehose* firehose, unsigned to, uint64_t target, const void* source,
                            size_t bytes) PINION_CHECKED;
int pinion_firehose_get_nbi(pinion_firehose* firehose, unsigned from, uint64_t source, void* target,
                            size_t bytes) PINION_CHECKED;

/* Waits for this thread's implicit operations: their data is in place. */
int pinion_firehose_fence(pinion_firehose* firehose) PINION_CHECKED;
/* Waits for all operations of the process. */
int pinion_firehose_quiet(pinion_firehose* firehose) PINION_CHECKED;

/* One piece of a scattered operation. */
struct pinion_firehose_piece {
  void* local;
  uint64_t remote;
  size_t bytes;
};
int pinion_firehose_put_v(pinion_firehose* firehose, unsigned to, const struct pinion_firehose_piece* pieces,
                          size_t count, pinion_firehose_handle* handle) PINION_CHECKED;
int pinion_firehose_get_v(pinion_firehose* firehose, unsigned from,
                          const struct pinion_firehose_piece* pieces, size_t count,
                          pinion_firehose_handle* handle) PINION_CHECKED;

/* ---- Atomics ---- */

enum pinion_firehose_operation {
  PINION_FIREHOSE_FETCH = 0,
  PINION_FIREHOSE_SET = 1,
  PINION_FIREHOSE_ADD = 2,
  PINION_FIREHOSE_AND = 3,
  PINION_FIREHOSE_OR = 4,
  PINION_FIREHOSE_XOR = 5,
  PINION_FIREHOSE_COMPARE_SWAP = 6 /* sets `operand` where the word equals `compare` */
};

/*
 * An atomic operation on a word of 4 or 8 bytes, aligned to its size, at `target`; returns its old value.
 * Atomic with respect to all other such operations on the word, from any process, its own included.
 */
int pinion_firehose_atomic(pinion_firehose* firehose, unsigned to, uint64_t target, size_t bytes,
                           enum pinion_firehose_operation operation, uint64_t operand, uint64_t compare,
                           uint64_t* old) PINION_CHECKED;

/* ---- Active messages, and together ---- */

/* Most bytes of a message's payload. */
size_t pinion_firehose_max_message(const pinion_firehose* firehose);
/* Sends to the peer's handler of that number; the payload is copied before the return. In order, for a peer.
 */
int pinion_firehose_send(pinion_firehose* firehose, unsigned to, unsigned handler, const void* payload,
                         size_t bytes) PINION_CHECKED;

int pinion_firehose_barrier(pinion_firehose* firehose) PINION_CHECKED;
/* Gathers `bytes` (at most 256) of each process into `all`, in order of process. */
int pinion_firehose_exchange(pinion_firehose* firehose, const void* own, size_t bytes,
                             void* all) PINION_CHECKED;

/* Lets operations and handlers proceed. Needed by no call; shortens waits of peers. */
int pinion_firehose_progress(pinion_firehose* firehose);

/* ---- Counters ---- */

struct pinion_firehose_statistics {
  size_t size; /* in: sizeof(struct pinion_firehose_statistics) */
  /* Figures of the initiator. */
  uint64_t puts, gets, atomics, messages;
  uint64_t hits;     /* puts and gets that found their memory held */
  uint64_t misses;   /* that asked a peer for one or more */
  uint64_t waited;   /* that found one asked for already */
  uint64_t riders;   /* small ones of them whose data travelled with the question */
  uint64_t messaged; /* that went by active message: refused, or without remote memory access */
  uint64_t moves;    /* firehoses moved: buckets asked for and granted */
  uint64_t refusals;
  uint64_t buckets;          /* firehoses held at peers now */
  uint64_t distinct_buckets; /* different ones ever held, approximately above a million */
  uint64_t bookkeeping_ns;   /* of hits, sampled: spent in firehose's own tables */
  uint64_t sampled_hits;
  uint64_t hit_ns, miss_ns; /* sums of latencies to delivery of blocking puts */
  uint64_t timed_hits, timed_misses;
  /* Figures of the owner. */
  uint64_t exposed_bytes;      /* registered for peers now */
  uint64_t exposed_peak_bytes; /* never more than M + MAXVICTIM */
  uint64_t pins, unpins;       /* buckets registered, deregistered */
  uint64_t victim_hits;        /* buckets wanted again that were still registered, unused */
  uint64_t recalls;            /* firehoses called back */
  uint64_t cut_off;            /* peers that did not let go in time */
  /* Figures of the initiator. */
  uint64_t packed; /* of `messaged`: small pieces of put_v and get_v that travelled together */
  /* Figures of the owner: sums of the times of its registrations and deregistrations, their queue included.
   */
  uint64_t pin_ns, unpin_ns;
};

int pinion_firehose_statistics(const pinion_firehose* firehose,
                               struct pinion_firehose_statistics* statistics);

#ifdef __cplusplus
}
#endif

#endif
