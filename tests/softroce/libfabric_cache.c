/*
 * libfabric's own registration cache, under its present monitor: a buffer is registered, sent, let go,
 * unmapped, mapped anew at the same address with other contents, registered and sent again. The received
 * contents show whether the cache used a registration of lost pages.
 *
 *   libfabric_cache MONITOR [before|after]
 *
 * MONITOR: feed, pinion_feed_libfabric(); deaf, a monitor that sees nothing; own, libfabric's own choice.
 * before, after: Pinion runs as well, and its hooks are older or younger than libfabric's; it has to see the
 * same events as libfabric. Both ends of the connection are in this process, over the provider `verbs`;
 * ADDRESS is that of the device. The status is 3 when something arrived wrong, 1 when something else failed.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pinion/pinion.h>
#include <pthread.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/process_status.h"

enum { kBytes = 1 << 20, kRounds = 4 };

#define CHECK(call)                                                                \
  do {                                                                             \
    const long result_ = (call);                                                   \
    if (result_) {                                                                 \
      fprintf(stderr, "%s: %ld %s\n", #call, result_, fi_strerror((int)-result_)); \
      exit(1);                                                                     \
    }                                                                              \
  } while (0)

/* ---- a monitor that sees nothing: the instrument's reading then ---- */

static int deaf_start(struct fid_mem_monitor* m) { return 0; }
static void deaf_stop(struct fid_mem_monitor* m) {}
static int deaf_subscribe(struct fid_mem_monitor* m, const void* a, size_t n) { return 0; }
static void deaf_unsubscribe(struct fid_mem_monitor* m, const void* a, size_t n) {}
static bool deaf_valid(struct fid_mem_monitor* m, const void* a, size_t n) { return true; }
static struct fi_ops_mem_monitor deaf_ops = {sizeof deaf_ops, deaf_start,       deaf_stop,
                                             deaf_subscribe,  deaf_unsubscribe, deaf_valid};
static struct fid_mem_monitor deaf = {.fid.fclass = FI_CLASS_MEM_MONITOR, .export_ops = &deaf_ops};

/* ---- a connection ---- */

static struct fi_info* info;
static struct fid_fabric* fabric;
static struct fid_domain* domain;
static struct fid_eq* events;

struct end {
  struct fid_ep* ep;
  struct fid_cq* cq;
};

static void open_end(struct end* end, struct fi_info* with) {
  struct fi_cq_attr attr = {.size = 64, .format = FI_CQ_FORMAT_MSG};
  CHECK(fi_endpoint(domain, with, &end->ep, NULL));
  CHECK(fi_cq_open(domain, &attr, &end->cq, NULL));
  CHECK(fi_ep_bind(end->ep, &end->cq->fid, FI_TRANSMIT | FI_RECV));
  CHECK(fi_ep_bind(end->ep, &events->fid, 0));
  CHECK(fi_enable(end->ep));
}

static struct fi_info* next_event(uint32_t wanted) {
  struct fi_eq_cm_entry entry;
  uint32_t event = 0;
  const ssize_t got = fi_eq_sread(events, &event, &entry, sizeof entry, 20000, 0);
  if (got < 0 || event != wanted) {
    fprintf(stderr, "connection: event %u, %s\n", event, got < 0 ? fi_strerror((int)-got) : "not expected");
    exit(1);
  }
  return entry.info;
}

static void wait_for(struct end* end) {
  struct fi_cq_msg_entry entry;
  ssize_t got;
  do {
    got = fi_cq_read(end->cq, &entry, 1);
  } while (got == -FI_EAGAIN);
  if (got == 1) return;
  struct fi_cq_err_entry error = {0};
  fi_cq_readerr(end->cq, &error, 0);
  fprintf(stderr, "completion: %s\n", fi_strerror(error.err));
  exit(1);
}

/* ---- transfers ---- */

static struct end here, there;
static unsigned char* arrived;
static struct fid_mr* arrived_mr;

static struct fid_mr* reg(void* memory) {
  struct fid_mr* mr;
  CHECK(fi_mr_reg(domain, memory, kBytes, FI_SEND | FI_RECV, 0, 0, 0, &mr, NULL));
  return mr;
}

/* Whether the received contents are the memory's. */
static int sends_right(unsigned char* memory, unsigned char stamp) {
  struct fid_mr* mr = reg(memory);
  memset(arrived, 0, kBytes);
  CHECK(fi_recv(there.ep, arrived, kBytes, fi_mr_desc(arrived_mr), 0, NULL));
  CHECK(fi_send(here.ep, memory, kBytes, fi_mr_desc(mr), 0, NULL));
  wait_for(&here);
  wait_for(&there);
  CHECK(fi_close(&mr->fid)); /* the cache keeps the registration */
  int right = 1;
  for (size_t i = 0; i < kBytes; i += 4096) right &= arrived[i] == stamp;
  return right;
}

/* ---- Pinion beside ---- */

static pinion_domain* beside;
static int beside_stale;

static void start_beside(void) {
  if (pinion_start("retention=leave-pinned") || pinion_domain_open(NULL, NULL, &beside)) {
    fprintf(stderr, "%s\n", pinion_last_error());
    exit(1);
  }
}

static void register_beside(void* memory) {
  pinion_lease lease;
  if (!beside) return;
  if (pinion_acquire(beside, memory, kBytes, PINION_ACCESS_WRITE, &lease) || pinion_release(&lease)) {
    fprintf(stderr, "%s\n", pinion_last_error());
    exit(1);
  }
}

/* The memory differs from the registered one. */
static void look_beside(void* memory) {
  pinion_lease lease;
  if (!beside || pinion_try_acquire(beside, memory, kBytes, PINION_ACCESS_READ, &lease)) return;
  ++beside_stale;
  pinion_release(&lease);
}

static void* map_at(void* place) {
  return mmap(place, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void* free_it(void* block) {
  free(block);
  return NULL;
}

int main(int argc, char** argv) {
  const char* monitor = argc > 1 ? argv[1] : "own";
  const char* pinion = argc > 2 ? argv[2] : "";
  struct fi_info* hints = fi_allocinfo();
  hints->ep_attr->type = FI_EP_MSG;
  hints->caps = FI_MSG;
  hints->mode = FI_CONTEXT | FI_RX_CQ_DATA;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
  hints->fabric_attr->prov_name = strdup("verbs");
  hints->addr_format = FI_SOCKADDR_IN;
  CHECK(fi_getinfo(FI_VERSION(1, 14), getenv("ADDRESS"), "7471", FI_SOURCE, hints, &info));

  if (!strcmp(monitor, "feed") && pinion_feed_libfabric()) {
    fprintf(stderr, "%s\n", pinion_last_error());
    return 1;
  }
  if (!strcmp(monitor, "deaf")) CHECK(fi_import(FI_VERSION(1, 14), "mr_cache", NULL, 0, 0, &deaf.fid, NULL));

  if (!strcmp(pinion, "before")) start_beside();
  struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_UNSPEC};
  struct fid_pep* listener;
  CHECK(fi_fabric(info->fabric_attr, &fabric, NULL));
  CHECK(fi_eq_open(fabric, &eq_attr, &events, NULL));
  CHECK(fi_passive_ep(fabric, info, &listener, NULL));
  CHECK(fi_pep_bind(listener, &events->fid, 0));
  CHECK(fi_listen(listener));
  CHECK(fi_domain(fabric, info, &domain, NULL));

  struct fi_info* to = NULL;
  hints->src_addr = NULL;
  CHECK(fi_getinfo(FI_VERSION(1, 14), getenv("ADDRESS"), "7471", 0, hints, &to));
  open_end(&here, to);
  CHECK(fi_connect(here.ep, to->dest_addr, NULL, 0));
  open_end(&there, next_event(FI_CONNREQ));
  CHECK(fi_accept(there.ep, NULL, 0));
  next_event(FI_CONNECTED);
  next_event(FI_CONNECTED);

  arrived = map_at(NULL);
  memset(arrived, 0, kBytes);
  arrived_mr = reg(arrived);

  if (!strcmp(pinion, "after")) start_beside();
  const long base = of_process_status("VmPin:");
  int wrong = 0, same_place = 0, kept = 0;
  unsigned char stamp = 0;
  unsigned char* memory = map_at(NULL);
  for (int i = 0; i < kRounds; ++i) {
    memset(memory, ++stamp, kBytes);
    wrong += !sends_right(memory, stamp);
    wrong += !sends_right(memory, stamp);
    kept += of_process_status("VmPin:") >= base + kBytes / 1024;
    register_beside(memory);
    munmap(memory, kBytes);
    unsigned char* again = map_at(memory);
    same_place += again == memory;
    memory = again;
    look_beside(memory);
  }
  const int mapped_wrong = wrong;
  munmap(memory, kBytes);

  /* Another thread changes blocks of malloc, which frees them unseen by preloaded symbols. */
  void* before = NULL;
  mallopt(M_MMAP_THRESHOLD, 65536);
  for (int i = 0; i < kRounds; ++i) {
    unsigned char* block = malloc(kBytes);
    same_place += block == before;
    before = block;
    look_beside(block);
    memset(block, ++stamp, kBytes);
    wrong += !sends_right(block, stamp);
    register_beside(block);
    if (i % 2) {
      pthread_t thread;
      pthread_create(&thread, NULL, free_it, block);
      pthread_join(thread, NULL);
    } else {
      free(block);
    }
  }
  usleep(100000);
  CHECK(fi_close(&reg(arrived)->fid)); /* libfabric unpins notified ranges at its next registration */
  printf("%s %s: wrong %d mapped, %d malloc, beside %d; same place %d, kept %d of %d; pinned %ld kB\n",
         monitor, pinion, mapped_wrong, wrong - mapped_wrong, beside_stale, same_place, kept, kRounds,
         of_process_status("VmPin:"));

  CHECK(fi_close(&arrived_mr->fid));
  CHECK(fi_close(&here.ep->fid));
  CHECK(fi_close(&there.ep->fid));
  CHECK(fi_close(&here.cq->fid));
  CHECK(fi_close(&there.cq->fid));
  CHECK(fi_close(&listener->fid));
  CHECK(fi_close(&domain->fid));
  CHECK(fi_close(&events->fid));
  CHECK(fi_close(&fabric->fid));
  if (beside && (pinion_domain_close(beside) || pinion_stop())) return 1;
  if (!strcmp(monitor, "feed") && kept != kRounds) return 1;
  return wrong + beside_stale ? 3 : 0;
}
