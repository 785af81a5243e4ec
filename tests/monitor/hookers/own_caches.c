/*
 * The rows of libraries that keep registrations of an RDMA device in a cache of their own: what a peer
 * receives shows whether the cache met the event. Stands in the place of hookers.c; needs Soft-RoCE.
 *
 * OWN_CACHE is the folder of the library; else it is the system's. Both ends of the connection are in this
 * process. ADDRESS is the device's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "hooked.h"

enum { kTrial = 1 << 20 };
static char* arrived;

static void* load_library(const char* name) {
  const char* const folder = getenv("OWN_CACHE");
  char path[4096];
  snprintf(path, sizeof path, "%s%s%s", folder ? folder : "", folder ? "/" : "", name);
  void* const library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!library) absent(dlerror());
  return library;
}
static void must(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "%s fails\n", what);
  exit(2);
}
static long pinned_kb(void) {
  char line[256];
  long kb = 0;
  FILE* const status = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, status)) sscanf(line, "VmPin: %ld", &kb);
  fclose(status);
  return kb;
}
static char* map(size_t bytes) {
  char* const m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(m != MAP_FAILED, "mmap");
  return m;
}
/* A library that registers anew for each transfer would pass every cell. */
static int keeps(int (*send)(char*, size_t)) {
  char *const first = map(kTrial), *const second = map(kTrial);
  memset(first, 1, kTrial);
  memset(second, 2, kTrial);
  must(send(first, kTrial) == 1, "the first transfer"); /* it registers buffers of the connection, too */
  const long before = pinned_kb();
  must(send(second, kTrial) == 2, "the second transfer");
  if (pinned_kb() < before + kTrial / 1024) absent("it keeps no registration");
  munmap(first, kTrial);
  munmap(second, kTrial);
  return 1;
}

/* ---- UCX: tagged messages, which the receiver reads from the sender's memory ---- */

static struct {
  __typeof__(&ucp_init_version) init;
  __typeof__(&ucp_config_read) read;
  __typeof__(&ucp_config_release) release;
  __typeof__(&ucp_worker_create) worker;
  __typeof__(&ucp_worker_get_address) address;
  __typeof__(&ucp_worker_release_address) release_address;
  __typeof__(&ucp_ep_create) endpoint;
  __typeof__(&ucp_ep_close_nbx) close;
  __typeof__(&ucp_tag_send_nbx) send;
  __typeof__(&ucp_tag_recv_nbx) receive;
  __typeof__(&ucp_worker_progress) progress;
  __typeof__(&ucp_request_check_status) status;
  __typeof__(&ucp_request_free) free;
  __typeof__(&ucp_worker_destroy) destroy;
  __typeof__(&ucp_cleanup) cleanup;
} ucx;
static ucp_context_h context;
static ucp_worker_h sender, receiver;
static ucp_ep_h endpoint;

static void await(ucs_status_ptr_t request) {
  if (!request) return;
  must(!UCS_PTR_IS_ERR(request), "a request of UCX");
  while (ucx.status(request) == UCS_INPROGRESS) {
    ucx.progress(sender);
    ucx.progress(receiver);
  }
  must(ucx.status(request) == UCS_OK, "a transfer of UCX");
  ucx.free(request);
}
static int send_by_ucx(char* memory, size_t bytes) {
  const ucp_request_param_t none = {0};
  memset(arrived, 0, bytes);
  const ucs_status_ptr_t received = ucx.receive(receiver, arrived, bytes, 7, (ucp_tag_t)-1, &none);
  await(ucx.send(endpoint, memory, bytes, 7, &none));
  await(received);
  return arrived[bytes / 2];
}
static int load_ucx(void) {
  void* const ucp = load_library("libucp.so.0");
  void** const table = (void**)&ucx;
  static const char* const kNames[] = {
      "ucp_init_version",  "ucp_config_read",        "ucp_config_release",
      "ucp_worker_create", "ucp_worker_get_address", "ucp_worker_release_address",
      "ucp_ep_create",     "ucp_ep_close_nbx",       "ucp_tag_send_nbx",
      "ucp_tag_recv_nbx",  "ucp_worker_progress",    "ucp_request_check_status",
      "ucp_request_free",  "ucp_worker_destroy",     "ucp_cleanup"};
  _Static_assert(sizeof kNames / sizeof *kNames == sizeof ucx / sizeof(void*), "a name for each function");
  for (size_t i = 0; i < sizeof kNames / sizeof *kNames; ++i) table[i] = dlsym(ucp, kNames[i]);
  arrived = map(kTrial);
  ucp_config_t* config;
  must(ucx.read(NULL, NULL, &config) == UCS_OK, "UCX's settings");
  const ucp_params_t wanted = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
  if (ucx.init(UCP_API_MAJOR, UCP_API_MINOR, &wanted, config, &context) != UCS_OK)
    absent("this UCX has no transport for RDMA devices");
  ucx.release(config);
  const ucp_worker_params_t worker = {0};
  must(ucx.worker(context, &worker, &sender) == UCS_OK, "a worker");
  must(ucx.worker(context, &worker, &receiver) == UCS_OK, "a worker");
  ucp_address_t* address;
  size_t length;
  must(ucx.address(receiver, &address, &length) == UCS_OK, "an address");
  const ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
  must(ucx.endpoint(sender, &to, &endpoint) == UCS_OK, "an endpoint");
  ucx.release_address(receiver, address);
  return keeps(send_by_ucx);
}
static void unload_ucx(void) {
  const ucp_request_param_t none = {0};
  await(ucx.close(endpoint, &none));
  ucx.destroy(sender);
  ucx.destroy(receiver);
  ucx.cleanup(context);
}

/* ---- libfabric: messages over the provider `verbs`, registered by fi_mr_reg() for each transfer ---- */

static struct fid_fabric* fabric;
static struct fid_domain* fabric_domain;
static struct fid_eq* events;
static struct fid_pep* listener;
static struct fid_mr* arrived_mr;
static struct end {
  struct fid_ep* ep;
  struct fid_cq* cq;
} here, there;

static void open_end(struct end* end, struct fi_info* with) {
  struct fi_cq_attr attr = {.size = 64, .format = FI_CQ_FORMAT_MSG};
  must(!fi_endpoint(fabric_domain, with, &end->ep, NULL) &&
           !fi_cq_open(fabric_domain, &attr, &end->cq, NULL) &&
           !fi_ep_bind(end->ep, &end->cq->fid, FI_TRANSMIT | FI_RECV) &&
           !fi_ep_bind(end->ep, &events->fid, 0) && !fi_enable(end->ep),
       "an endpoint");
}
static struct fi_info* next_event(uint32_t wanted) {
  struct fi_eq_cm_entry entry;
  uint32_t event = 0;
  must(fi_eq_sread(events, &event, &entry, sizeof entry, 20000, 0) > 0 && event == wanted, "the connection");
  return entry.info;
}
static void await_end(struct end* end) {
  struct fi_cq_msg_entry entry;
  ssize_t got;
  do {
    got = fi_cq_read(end->cq, &entry, 1);
  } while (got == -FI_EAGAIN);
  must(got == 1, "a completion");
}
static struct fid_mr* reg(void* memory, size_t bytes) {
  struct fid_mr* mr;
  must(!fi_mr_reg(fabric_domain, memory, bytes, FI_SEND | FI_RECV, 0, 0, 0, &mr, NULL), "fi_mr_reg");
  return mr;
}
static int send_by_libfabric(char* memory, size_t bytes) {
  struct fid_mr* const mr = reg(memory, bytes);
  memset(arrived, 0, bytes);
  must(!fi_recv(there.ep, arrived, bytes, fi_mr_desc(arrived_mr), 0, NULL) &&
           !fi_send(here.ep, memory, bytes, fi_mr_desc(mr), 0, NULL),
       "a message");
  await_end(&here);
  await_end(&there);
  must(!fi_close(&mr->fid), "fi_close"); /* the cache keeps the registration */
  return arrived[bytes / 2];
}
static int load_libfabric(void) {
  void* const library = load_library("libfabric.so.1");
  __typeof__(&fi_getinfo) const getinfo = dlsym(library, "fi_getinfo");
  __typeof__(&fi_dupinfo) const dupinfo = dlsym(library, "fi_dupinfo");
  __typeof__(&fi_fabric) const open_fabric = dlsym(library, "fi_fabric");
  const char* const address = getenv("ADDRESS");
  char port[16];
  snprintf(port, sizeof port, "%d", 20000 + getpid() % 20000);
  struct fi_info *const hints = dupinfo(NULL), *info, *to;
  hints->ep_attr->type = FI_EP_MSG;
  hints->caps = FI_MSG;
  hints->mode = FI_CONTEXT | FI_RX_CQ_DATA;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
  hints->fabric_attr->prov_name = strdup("verbs");
  hints->addr_format = FI_SOCKADDR_IN;
  struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_UNSPEC};
  must(!getinfo(FI_VERSION(1, 14), address, port, FI_SOURCE, hints, &info), "fi_getinfo");
  must(!open_fabric(info->fabric_attr, &fabric, NULL) && !fi_eq_open(fabric, &eq_attr, &events, NULL) &&
           !fi_passive_ep(fabric, info, &listener, NULL) && !fi_pep_bind(listener, &events->fid, 0) &&
           !fi_listen(listener) && !fi_domain(fabric, info, &fabric_domain, NULL),
       "a domain");
  hints->src_addr = NULL;
  must(!getinfo(FI_VERSION(1, 14), address, port, 0, hints, &to), "fi_getinfo");
  open_end(&here, to);
  must(!fi_connect(here.ep, to->dest_addr, NULL, 0), "fi_connect");
  open_end(&there, next_event(FI_CONNREQ));
  must(!fi_accept(there.ep, NULL, 0), "fi_accept");
  next_event(FI_CONNECTED);
  next_event(FI_CONNECTED);
  arrived = map(kTrial);
  arrived_mr = reg(arrived, kTrial);
  return keeps(send_by_libfabric);
}
static void unload_libfabric(void) {
  struct fid* const all[] = {&arrived_mr->fid,    &here.ep->fid,  &there.ep->fid,
                             &here.cq->fid,       &there.cq->fid, &listener->fid,
                             &fabric_domain->fid, &events->fid,   &fabric->fid};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) must(!fi_close(all[i]), "fi_close");
}
/* Its thread for userfaultfd reads an event before the call that made it returns, and notes it soon after. */
static void settle_libfabric(void) { usleep(50000); }

static const struct hooker kOwnCaches[] = {
    {.name = "ucx-cache",
     .load = load_ucx,
     .unload = unload_ucx,
     .send = send_by_ucx,
     .loses_destination = 1},
    {.name = "libfabric-cache",
     .load = load_libfabric,
     .unload = unload_libfabric,
     .send = send_by_libfabric,
     .settle = settle_libfabric},
};

const struct hooker* find_hooker(const char* name) {
  for (size_t i = 0; i < sizeof kOwnCaches / sizeof *kOwnCaches; ++i)
    if (strcmp(kOwnCaches[i].name, name) == 0) return &kOwnCaches[i];
  fprintf(stderr, "unknown hooker: %s\n", name);
  exit(2);
}
