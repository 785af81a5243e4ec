/* A made-up libibverbs with one device, which registers nothing: for what Pinion does where a program meets an
   RDMA device, on machines without one. Its device may not be opened where MADE_UP_REFUSES is set. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "made_up.h"

#undef ibv_reg_mr
#undef ibv_query_port

static struct ibv_device device = {.name = "made0", .node_type = IBV_NODE_CA};
static struct ibv_device* list[] = {&device, NULL};
static struct ibv_context context = {.device = &device};
static struct ibv_pd pd = {.context = &context};
static atomic_ulong registered, held;
static atomic_uint last_key;
static atomic_bool unplugged;

unsigned long made_up_registered(void) { return registered; }
unsigned long made_up_held(void) { return held; }
void made_up_unplug(void) { unplugged = 1; }

struct ibv_device** ibv_get_device_list(int* count) {
  if (count) *count = 1;
  return list;
}
void ibv_free_device_list(struct ibv_device** of) { (void)of; }
const char* ibv_get_device_name(struct ibv_device* of) { return of->name; }

struct ibv_context* ibv_open_device(struct ibv_device* of) {
  (void)of;
  if (!getenv("MADE_UP_REFUSES")) return &context;
  errno = EACCES;
  return NULL;
}
int ibv_close_device(struct ibv_context* of) { return of != &context; }

int ibv_query_device(struct ibv_context* of, struct ibv_device_attr* attributes) {
  (void)of;
  if (unplugged) return EIO;
  memset(attributes, 0, sizeof *attributes);
  attributes->max_mr = 1000;
  attributes->max_mr_size = 1ul << 40;
  attributes->phys_port_cnt = 1;
  return 0;
}
int ibv_query_port(struct ibv_context* of, uint8_t port, struct _compat_ibv_port_attr* attributes) {
  (void)of, (void)port;
  ((struct ibv_port_attr*)attributes)->state = IBV_PORT_ACTIVE;
  return unplugged ? EIO : 0;
}

struct ibv_pd* ibv_alloc_pd(struct ibv_context* of) {
  (void)of;
  return &pd;
}
int ibv_dealloc_pd(struct ibv_pd* of) { return of != &pd; }

struct ibv_mr* ibv_reg_mr(struct ibv_pd* of, void* address, size_t bytes, int access) {
  (void)access;
  struct ibv_mr* const mr = unplugged ? NULL : calloc(1, sizeof *mr);
  if (!mr) {
    errno = EIO;
    return NULL;
  }
  *mr = (struct ibv_mr){.context = of->context, .pd = of, .addr = address, .length = bytes};
  mr->lkey = mr->rkey = ++last_key;
  ++registered;
  ++held;
  return mr;
}
int ibv_dereg_mr(struct ibv_mr* mr) {
  if (unplugged) return EIO;
  free(mr);
  --held;
  return 0;
}
