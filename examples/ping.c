/*
 * Messages by put between two processes, over the program's own libfabric domain: where to begin with Pinion
 * below a communication library.
 *
 *   ping [BYTES [PROVIDER]]
 *
 * The receiver of a message leases its buffer and tells the sender the address and key. The sender leases its
 * own, puts, and says when it has ended; only then does the receiver release. A peer that may still write
 * holds a key: no lease ends before that. A socket pair stands for the library's control messages. Prints the
 * time of a message, the share of hits, and `ping: verified` when all contents were right.
 */
#include <errno.h>
#include <inttypes.h>
#include <pinion/pinion.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 50, ADDRESS_BYTES = 256 };

/* The memory of a peer. */
struct target {
  uint64_t address, key;
};

static struct {
  int control; /* to the peer */
  struct fi_info* info;
  struct fid_fabric* fabric;
  struct fid_domain* domain;
  struct fid_av* addresses;
  struct fid_cq* completions;
  struct fid_ep* endpoint;
  fi_addr_t peer;
  pinion_domain* cache;
} own;

static void fabric_checked(int error, const char* step) {
  if (error == 0) return;
  fprintf(stderr, "ping: %s: %s\n", step, fi_strerror(-error));
  exit(1);
}

static void pinion_checked(int error, const char* step) {
  if (error == 0) return;
  fprintf(stderr, "ping: %s: %s\n", step, pinion_last_error());
  exit(1);
}

/* ---- control messages ---- */

static void tell(const void* data, size_t bytes) {
  if (write(own.control, data, bytes) != (ssize_t)bytes) exit(1); /* the peer has ended, and said why */
}

static void progress(void) {
  struct fi_cq_entry none;
  const ssize_t done = fi_cq_read(own.completions, &none, 0);
  if (done < 0 && done != -FI_EAGAIN) fabric_checked((int)done, "progress");
}

/* Puts of the peer may need this process's help until they arrive. */
static void hear(void* data, size_t bytes) {
  ssize_t got;
  while ((got = recv(own.control, data, bytes, MSG_DONTWAIT)) < 0 && errno == EAGAIN) progress();
  if (got != (ssize_t)bytes) exit(1);
}

/* ---- the network ---- */

static void open_fabric(const char* provider) {
  struct fi_info* hints = fi_allocinfo();
  struct fi_av_attr addresses = {.type = FI_AV_TABLE};
  struct fi_cq_attr completions = {.format = FI_CQ_FORMAT_CONTEXT};
  char name[ADDRESS_BYTES] = {0}, peer[ADDRESS_BYTES];
  size_t length = sizeof name;

  hints->caps = FI_RMA | FI_MSG;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  if (provider) hints->fabric_attr->prov_name = strdup(provider);
  fabric_checked(fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &own.info), "no provider");
  fi_freeinfo(hints);
  fabric_checked(fi_fabric(own.info->fabric_attr, &own.fabric, NULL), "fabric");
  fabric_checked(fi_domain(own.fabric, own.info, &own.domain, NULL), "domain");
  fabric_checked(fi_av_open(own.domain, &addresses, &own.addresses, NULL), "addresses");
  fabric_checked(fi_cq_open(own.domain, &completions, &own.completions, NULL), "completions");
  fabric_checked(fi_endpoint(own.domain, own.info, &own.endpoint, NULL), "endpoint");
  fabric_checked(fi_ep_bind(own.endpoint, &own.addresses->fid, 0), "binding the addresses");
  fabric_checked(fi_ep_bind(own.endpoint, &own.completions->fid, FI_TRANSMIT | FI_RECV), "binding the queue");
  fabric_checked(fi_enable(own.endpoint), "enabling");
  fabric_checked(fi_getname(&own.endpoint->fid, name, &length), "the own address");
  tell(name, sizeof name);
  hear(peer, sizeof peer);
  if (fi_av_insert(own.addresses, peer, 1, &own.peer, 0, NULL) != 1) fabric_checked(-FI_EINVAL, "the peer");
}

static void close_fabric(void) {
  fi_close(&own.endpoint->fid);
  fi_close(&own.completions->fid);
  fi_close(&own.addresses->fid);
  fi_close(&own.domain->fid);
  fi_close(&own.fabric->fid);
  fi_freeinfo(own.info);
}

/* Returns when the data is in the peer's memory. */
static void put(const char* data, size_t bytes, void* descriptor, const struct target* target) {
  const struct iovec local = {(void*)data, bytes};
  const struct fi_rma_iov remote = {target->address, bytes, target->key};
  const struct fi_msg_rma message = {.msg_iov = &local,
                                     .desc = &descriptor,
                                     .iov_count = 1,
                                     .addr = own.peer,
                                     .rma_iov = &remote,
                                     .rma_iov_count = 1};
  struct fi_cq_entry entry;
  ssize_t done;
  while ((done = fi_writemsg(own.endpoint, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE)) == -FI_EAGAIN)
    progress();
  fabric_checked((int)done, "put");
  while ((done = fi_cq_read(own.completions, &entry, 1)) == -FI_EAGAIN) continue;
  if (done != 1) fabric_checked((int)done, "completion");
}

/* ---- messages ---- */

static void send_message(const char* data, size_t bytes) {
  struct pinion_keys keys = {.size = sizeof keys};
  pinion_lease lease;
  struct target target;
  hear(&target, sizeof target);
  pinion_checked(pinion_acquire(own.cache, data, bytes, PINION_ACCESS_READ, &lease), "acquire");
  pinion_checked(pinion_lease_keys(&lease, &keys), "keys");
  put(data, bytes, keys.descriptor, &target);
  tell("", 1);
  pinion_checked(pinion_release(&lease), "release");
}

static void receive_message(char* memory, size_t bytes) {
  struct pinion_keys keys = {.size = sizeof keys};
  pinion_lease lease;
  struct target target;
  char ended;
  pinion_checked(
      pinion_acquire(own.cache, memory, bytes, PINION_ACCESS_WRITE | PINION_ACCESS_REMOTE_WRITE, &lease),
      "acquire");
  pinion_checked(pinion_lease_keys(&lease, &keys), "keys");
  target.address = keys.remote_base + ((uintptr_t)memory - keys.address);
  target.key = keys.remote_key;
  tell(&target, sizeof target);
  hear(&ended, 1);
  pinion_checked(pinion_release(&lease), "release");
}

static void fill(char* data, size_t bytes, int round) {
  for (size_t i = 0; i < bytes; ++i) data[i] = (char)(i * 31 + (size_t)round);
}

/* Both processes run this; `first` sends first. Returns whether the contents were right. */
static int ping(int first, size_t bytes, const char* provider) {
  struct pinion_statistics statistics = {.size = sizeof statistics};
  struct timespec begin, end;
  char* const data = malloc(bytes);
  char* const memory = malloc(bytes);
  int right = 1;

  open_fabric(provider);
  pinion_checked(pinion_start("retention=leave-pinned"), "start");
  pinion_checked(pinion_domain_open_fabric(own.domain, own.info, own.endpoint, &own.cache), "domain");
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int round = 0; round < ROUNDS; ++round) {
    fill(data, bytes, round);
    if (first) send_message(data, bytes);
    receive_message(memory, bytes);
    if (!first) send_message(data, bytes);
    right = right && memcmp(memory, data, bytes) == 0;
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  pinion_checked(pinion_statistics(own.cache, &statistics), "statistics");
  if (first)
    printf("%s: %zu bytes, %.1f us a message, %" PRIu64 " of %" PRIu64 " acquires were hits\n",
           own.info->fabric_attr->prov_name, bytes,
           ((double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) / 1e3) /
               (2 * ROUNDS),
           statistics.hits, statistics.acquires);
  /* Nobody leaves while the other one may need help. */
  tell("", 1);
  hear(data, 1);
  pinion_checked(pinion_domain_close(own.cache), "close");
  pinion_checked(pinion_stop(), "stop");
  close_fabric();
  free(data);
  free(memory);
  return right;
}

int main(int argc, char** argv) {
  const long long bytes = argc > 1 ? atoll(argv[1]) : 1 << 20;
  const char* const provider = argc > 2 ? argv[2] : NULL;
  int pair[2], status = 1;
  if (argc > 3 || bytes < 1) {
    fprintf(stderr, "usage: ping [BYTES [PROVIDER]]\n");
    return 2;
  }
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) return 1;
  fflush(NULL);
  const pid_t child = fork(); /* before libfabric and Pinion start: neither lives on in a child */
  if (child < 0) return 1;
  own.control = pair[child == 0];
  close(pair[child != 0]);
  const int right = ping(child != 0, (size_t)bytes, provider);
  if (child == 0) return !right;
  if (waitpid(child, &status, 0) != child || status != 0 || !right) {
    puts("ping: FAILED");
    return 1;
  }
  puts("ping: verified");
  return 0;
}
