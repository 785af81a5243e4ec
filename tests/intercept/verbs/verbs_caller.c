// A library above the verbs front: it registers memory by its linked functions.
#include <infiniband/verbs.h>
#include <stddef.h>

struct ibv_mr* call_reg_mr(struct ibv_pd* pd, void* memory, size_t bytes) {
  return ibv_reg_mr_iova2(pd, memory, bytes, (uintptr_t)memory, IBV_ACCESS_LOCAL_WRITE);
}
int call_dereg_mr(struct ibv_mr* mr) { return ibv_dereg_mr(mr); }
