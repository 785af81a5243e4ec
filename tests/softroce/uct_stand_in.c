// A library that the preload recognises as a registration cache by its name.
#include <infiniband/verbs.h>

struct ibv_mr* stand_in_register(struct ibv_pd* pd, void* memory, size_t bytes, int access) {
  return ibv_reg_mr(pd, memory, bytes, access);
}
int stand_in_deregister(struct ibv_mr* mr) { return ibv_dereg_mr(mr); }
