/*
 * Preparing a heap: its memory is faulted in and registered in the background, and is there when the first
 * transfer comes.
 *
 *   prepare [MIB]
 *
 * Prints the progress, and `prepare: verified` when transfers all over the heap have been hits.
 */
#include <errno.h>
#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdio.h>
#include <stdlib.h>

enum { MESSAGE_BYTES = 1 << 20 };

static void stop_with_error(const char* what) {
  fprintf(stderr, "prepare: %s: %s\n", what, pinion_last_error());
  exit(1);
}

int main(int argc, char** argv) {
  const long mib = argc > 1 ? strtol(argv[1], NULL, 10) : 256;
  const size_t bytes = (size_t)mib << 20;
  struct pinion_prepare_options options = {
      .size = sizeof options, .access = PINION_ACCESS_WRITE, .hugepages = 1};
  struct pinion_preparation_state state = {.size = sizeof state};
  struct pinion_statistics statistics = {.size = sizeof statistics};
  struct pinion_range heap;
  pinion_domain* domain;
  pinion_preparation* preparation;
  uint64_t misses;

  if (argc > 2 || mib < 1) {
    fprintf(stderr, "usage: prepare [MIB]\n");
    return 2;
  }
  char* const memory = aligned_alloc(2 << 20, bytes); /* so that hugepages fit */
  if (!memory) {
    fprintf(stderr, "prepare: no memory\n");
    return 1;
  }
  heap.address = memory;
  heap.bytes = bytes;

  if (pinion_start("retention=leave-pinned") != 0) stop_with_error("start");
  if (pinion_domain_open(NULL, NULL, &domain) != 0) stop_with_error("domain");
  if (pinion_prepare(domain, &heap, 1, &options, &preparation) != 0) stop_with_error("prepare");

  /* A server would serve meanwhile. */
  while (pinion_preparation_wait(preparation, 100 * 1000 * 1000) != 0) {
    if (pinion_preparation_poll(preparation, &state) != 0) stop_with_error("poll");
    if (state.error != EINPROGRESS && state.error != 0) stop_with_error("wait");
    printf("%" PRIu64 " of %" PRIu64 " MiB\n", state.prepared_bytes >> 20, state.bytes >> 20);
  }
  if (pinion_preparation_poll(preparation, &state) != 0) stop_with_error("poll");
  printf("ready after %" PRIu64 " ms\n", state.elapsed_ns / 1000000);

  if (pinion_statistics(domain, &statistics) != 0) stop_with_error("statistics");
  misses = statistics.misses;
  for (size_t at = 0; at < bytes; at += MESSAGE_BYTES) {
    pinion_lease lease;
    if (pinion_acquire(domain, memory + at, MESSAGE_BYTES, PINION_ACCESS_WRITE, &lease) != 0)
      stop_with_error("acquire");
    pinion_release(&lease);
  }
  if (pinion_statistics(domain, &statistics) != 0) stop_with_error("statistics");

  if (pinion_preparation_end(preparation) != 0) stop_with_error("end");
  if (pinion_domain_close(domain) != 0) stop_with_error("close");
  if (pinion_stop() != 0) stop_with_error("stop");
  free(memory);
  puts(statistics.misses == misses ? "prepare: verified" : "prepare: FAILED");
  return statistics.misses != misses;
}
