/*
 * A registration cache for middleware, in C: the steps of a communication library for each large message
 * from, or into, memory of its user.
 *
 *   registration_cache [ROUNDS]
 *
 * The "network" here is a memcpy under the keys of two leases. Each round moves one message between buffers
 * that are reused; every tenth round allocates its buffers anew, as programs do: no cached registration may
 * survive that. Prints the cache's counters, and `registration_cache: verified` when every byte arrived.
 */
#include <errno.h>
#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_BYTES = 1 << 20, SMALL_BYTES = 16 << 10 };

static void stop_with_error(const char* what) {
  fprintf(stderr, "registration_cache: %s: %s\n", what, pinion_last_error());
  exit(1);
}

/* The NIC's part: it reaches memory by keys only. */
static void network(const struct pinion_keys* from, size_t from_offset, const struct pinion_keys* to,
                    size_t to_offset, size_t bytes) {
  memcpy((char*)(uintptr_t)to->address + to_offset, (char*)(uintptr_t)from->address + from_offset, bytes);
}

/* A message that needs no registration: too small, or refused by the limit. */
static void send_by_copy(const char* from, char* to, size_t bytes) {
  static char bounce[SMALL_BYTES];
  while (bytes > 0) {
    const size_t part = bytes < sizeof bounce ? bytes : sizeof bounce;
    memcpy(bounce, from, part);
    memcpy(to, bounce, part);
    from += part;
    to += part;
    bytes -= part;
  }
}

static void send_message(pinion_domain* domain, const char* from, char* to, size_t bytes) {
  pinion_lease source, target;
  struct pinion_keys source_keys = {.size = sizeof source_keys}, target_keys = {.size = sizeof target_keys};

  if (!domain || bytes < SMALL_BYTES ||
      pinion_acquire(domain, from, bytes, PINION_ACCESS_READ, &source) != 0) {
    send_by_copy(from, to, bytes);
    return;
  }
  if (pinion_acquire(domain, to, bytes, PINION_ACCESS_WRITE, &target) != 0) {
    pinion_release(&source);
    send_by_copy(from, to, bytes);
    return;
  }
  /* Without keys (retention `observe`) the leases still show Pinion how long the buffers are in use. */
  if (pinion_lease_keys(&source, &source_keys) == 0 && pinion_lease_keys(&target, &target_keys) == 0) {
    network(&source_keys, (uintptr_t)from - source_keys.address, &target_keys,
            (uintptr_t)to - target_keys.address, bytes);
  } else {
    send_by_copy(from, to, bytes);
  }
  pinion_release(&target);
  pinion_release(&source);
}

int main(int argc, char** argv) {
  const long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 100;
  pinion_domain* domain = NULL;
  struct pinion_statistics statistics = {.size = sizeof statistics};
  char *from = NULL, *to = NULL;
  int error, wrong = 0;

  if (argc > 2 || rounds < 1) {
    fprintf(stderr, "usage: registration_cache [ROUNDS]\n");
    return 2;
  }

  /* Our own preference; the user's environment (PINION="limit=1G,...") overrides it. */
  error = pinion_start("retention=leave-pinned");
  /* Another library in this process prefers otherwise: fine with us. */
  if (error == EBUSY) error = pinion_start(NULL);
  /* Switched off by the user (PINION=off): all messages are copied. */
  if (error != 0 && error != ECANCELED) stop_with_error("start");
  if (error == 0 && pinion_domain_open(NULL, NULL, &domain) != 0) stop_with_error("domain");

  for (long round = 0; round < rounds; ++round) {
    if (round % 10 == 0) {
      free(from);
      free(to);
      from = malloc(MESSAGE_BYTES);
      to = malloc(MESSAGE_BYTES);
      if (!from || !to) {
        fprintf(stderr, "registration_cache: no memory\n");
        return 1;
      }
    }
    memset(from, (int)(round % 251) + 1, MESSAGE_BYTES);
    memset(to, 0, MESSAGE_BYTES);
    send_message(domain, from, to, MESSAGE_BYTES);
    wrong |= memcmp(from, to, MESSAGE_BYTES) != 0;
  }
  free(from);
  free(to);

  if (domain) {
    if (pinion_statistics(domain, &statistics) != 0) stop_with_error("statistics");
    printf("Pinion %s: %" PRIu64 " acquires, %" PRIu64 " hits, %" PRIu64 " misses, %" PRIu64
           " bounced; registered at most %" PRIu64 " bytes\n",
           pinion_version(), statistics.acquires, statistics.hits, statistics.misses, statistics.bounced,
           statistics.registered_peak_bytes);
    if (pinion_domain_close(domain) != 0) stop_with_error("close");
    if (pinion_stop() != 0) stop_with_error("stop");
  }
  puts(wrong ? "registration_cache: FAILED" : "registration_cache: verified");
  return wrong;
}
