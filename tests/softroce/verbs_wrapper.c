// A tool that stands before libibverbs' functions, as tracers do. It finds the next ones by RTLD_NEXT, or,
// with WRAPPER=library, by a handle of the library.
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdlib.h>

#undef ibv_reg_mr

static void* next(const char* name) {
  const char* how = getenv("WRAPPER");
  return dlsym(how && *how == 'l' ? dlopen("libibverbs.so.1", RTLD_NOW) : RTLD_NEXT, name);
}

struct ibv_mr* ibv_reg_mr(struct ibv_pd* pd, void* address, size_t bytes, int access) {
  struct ibv_mr* (*function)(struct ibv_pd*, void*, size_t, int) = next("ibv_reg_mr");
  return function(pd, address, bytes, access);
}

struct ibv_mr* ibv_reg_mr_iova2(struct ibv_pd* pd, void* address, size_t bytes, uint64_t iova,
                                unsigned access) {
  struct ibv_mr* (*function)(struct ibv_pd*, void*, size_t, uint64_t, unsigned) = next("ibv_reg_mr_iova2");
  return function(pd, address, bytes, iova, access);
}

int ibv_dereg_mr(struct ibv_mr* mr) {
  int (*function)(struct ibv_mr*) = next("ibv_dereg_mr");
  return function(mr);
}
