/*
 * Copies one buffer to a GPU again and again, as programs do that offload data: an ordinary user of CUDA's
 * driver, built without its headers and free of Pinion.
 *
 *   gpu_copy [MIB] [COPIES]
 *
 * Prints the time of each copy and of its bytes on their way back, and `gpu_copy: verified`. Without a driver
 * or a GPU it prints one line and exits with status 77.
 *
 *   pinion run -- gpu_copy        the first copies are as they were, later ones are faster
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long device_pointer;

static struct {
  int (*init)(unsigned flags);
  int (*device_get)(int* device, int ordinal);
  int (*retain)(void** context, int device);
  int (*set_current)(void* context);
  int (*allocate)(device_pointer* memory, size_t bytes);
  int (*copy_in)(device_pointer to, const void* from, size_t bytes);
  int (*copy_out)(void* to, device_pointer from, size_t bytes);
  int (*synchronize)(void);
} cuda;

static void leave_out(const char* why) {
  printf("gpu_copy: left out: %s\n", why);
  exit(77);
}

static void load_driver(void) {
  static const char* const names[] = {"cuInit",          "cuDeviceGet",     "cuDevicePrimaryCtxRetain",
                                      "cuCtxSetCurrent", "cuMemAlloc_v2",   "cuMemcpyHtoD_v2",
                                      "cuMemcpyDtoH_v2", "cuCtxSynchronize"};
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  void* calls[sizeof names / sizeof *names];
  if (!library) leave_out("no CUDA driver (libcuda.so.1)");
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    calls[i] = dlsym(library, names[i]);
    if (!calls[i]) leave_out("the CUDA driver lacks a call");
  }
  memcpy(&cuda, calls, sizeof cuda);
}

static void need(int result, const char* call) {
  if (result == 0) return;
  fprintf(stderr, "gpu_copy: %s: error %d\n", call, result);
  exit(1);
}

static double milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void write_words(uint64_t* memory, size_t words, uint64_t seed) {
  for (size_t i = 0; i < words; ++i) memory[i] = seed * 0x9e3779b97f4a7c15u + i;
}

int main(int argc, char** argv) {
  const long mib = argc > 1 ? strtol(argv[1], NULL, 10) : 64;
  const long copies = argc > 2 ? strtol(argv[2], NULL, 10) : 20;
  const size_t bytes = (size_t)mib << 20, words = bytes / sizeof(uint64_t);
  device_pointer there = 0;
  void* context = NULL;
  int device = 0, right = 1;

  if (argc > 3 || mib < 1 || copies < 1) {
    fprintf(stderr, "usage: gpu_copy [MIB] [COPIES]\n");
    return 2;
  }
  load_driver();
  if (cuda.init(0) != 0 || cuda.device_get(&device, 0) != 0) leave_out("no GPU");
  need(cuda.retain(&context, device), "cuDevicePrimaryCtxRetain");
  need(cuda.set_current(context), "cuCtxSetCurrent");
  need(cuda.allocate(&there, bytes), "cuMemAlloc");

  uint64_t* const memory = malloc(bytes);
  uint64_t* const back = malloc(bytes);
  if (!memory || !back) {
    fprintf(stderr, "gpu_copy: no memory\n");
    return 1;
  }
  memset(back, 0xff, bytes);
  for (long i = 1; i <= copies; ++i) {
    write_words(memory, words, (uint64_t)i);
    const double began = milliseconds();
    need(cuda.copy_in(there, memory, bytes), "cuMemcpyHtoD");
    need(cuda.synchronize(), "cuCtxSynchronize");
    const double copied = milliseconds();
    need(cuda.copy_out(back, there, bytes), "cuMemcpyDtoH");
    const double returned = milliseconds();
    printf("%3ld: to the GPU %.2f ms (%.1f GB/s), from it %.2f ms (%.1f GB/s)\n", i, copied - began,
           (double)bytes / (copied - began) / 1e6, returned - copied,
           (double)bytes / (returned - copied) / 1e6);
    right = right && memcmp(memory, back, bytes) == 0;
  }
  free(memory);
  free(back);
  puts(right ? "gpu_copy: verified" : "gpu_copy: FAILED");
  return !right;
}
