// A library by whose name the preload knows a registration cache.
#include <infiniband/verbs.h>

struct ibv_mr* stand_in_register(struct ibv_pd* pd, void* memory, size_t bytes, int access) {
  return ibv_reg_mr(pd, memory, bytes, access);
}
