// A made-up CUDA driver for tests without a GPU. It is a libcuda.so.1 that follows evidence-gpu.md: device
// memory behind fake addresses, streams with threads of their own, copies that read through the pages that
// were pinned (so a stale registration shows old bytes), captures, contexts whose handles recur.
//
// How a test uses it (CMake: pinion_uses_made_up_cuda(TARGET), which builds the library, and defines
// PINION_TEST_CUDA as its path): either the test opens it and keeps the controls,
//
//     const auto cuda = pinion::made_up_cuda::open(PINION_TEST_CUDA);   // all controls, and `library`
//     dlsym(cuda.library, "cuInit")
//
// or its programs find it: LD_LIBRARY_PATH=PINION_TEST_CUDA_DIRECTORY. A test may also link the CMake target
// made_up_cuda. Nothing is closed or reset: a test that needs a fresh driver runs in a process of its own.
//
// Environment, read by cuInit: MADE_UP_CUDA_NO_DEVICE=1 makes it return 100, as on a node without a GPU;
// MADE_UP_CUDA_LONGEST_WAIT=MS is madeUpSetLongestWait() for programs; MADE_UP_CUDA_STRICT_EXIT=1 ends the
// process with a line, if it calls after the driver's exit handler (else such calls return 4);
// MADE_UP_CUDA_STRICT=1 is madeUpBeStrict(1). Read by cuGetProcAddress: MADE_UP_CUDA_ANY_NAME=1 makes unknown
// names functions that return 801.
//
// driver_facts, which measures real drivers, runs on it and gets the answers of evidence-gpu.md, times
// apart: LD_LIBRARY_PATH=build/tests/made_up_cuda build/tests/driver_facts waits returns partly captures.
//
// The name cuMemcpyOfTomorrow (version 13010) stands for a copy that no front knows.
//
// The controls may be called by any thread, beside any call. Streams are named by handle, 1 and 2 (the
// legacy stream and the calling thread's own, of its current context); 0 means 1.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

/// The controls: their results, names, parameters.
#define MADE_UP_CUDA_CONTROLS(X)                                                                           \
  /* Calls of an entry point so far, by its exported name (cuMemHostRegister_v2). */                       \
  X(unsigned long long, madeUpCalls, (const char* name))                                                   \
  /* Calls `observer` at the beginning of each call, in the calling thread; null: no more. */              \
  X(void, madeUpAtCall, (void (*observer)(const char* name)))                                              \
  /* The nth call of the name from now on (1: the next) does nothing and returns the code. */              \
  X(void, madeUpFailCall, (const char* name, unsigned long long nth, int code))                            \
  /* Each call of the name waits so long before it does anything. */                                       \
  X(void, madeUpDelayCall, (const char* name, unsigned long long microseconds))                            \
  /* Each piece of work waits so long before it moves bytes (0 at first). */                               \
  X(void, madeUpDelayWork, (unsigned long long microseconds))                                              \
  /* A batch that reads its sources late waits so long (1000 at first). */                                 \
  X(void, madeUpDelayBatch, (unsigned long long microseconds))                                             \
  /* A call that waits longer ends the process with a line that names it (60000 at first). */              \
  X(void, madeUpSetLongestWait, (unsigned long long milliseconds))                                         \
  /* The largest pageable copy to the device that returns at once (2097152 at first). */                   \
  X(void, madeUpSetAsyncLimit, (size_t bytes))                                                             \
  /* Sets what cuMemGetInfo says is free. */                                                               \
  X(void, madeUpSetFreeMemory, (size_t bytes))                                                             \
  /* 1: registrations pin pages. 0: this machine cannot, and stale bytes stay unseen: skip such tests. */  \
  X(int, madeUpPins, ())                                                                                   \
  /* Gives a context (null: all) an error that stays. */                                                   \
  X(void, madeUpBreak, (void* context, int code))                                                          \
  /* Puts a gate into a stream, which holds back later work; opens all gates of a stream. */               \
  X(int, madeUpCloseGate, (void* stream))                                                                  \
  X(int, madeUpOpenGate, (void* stream))                                                                   \
  /* Calls that wait in the driver now. */                                                                 \
  X(int, madeUpWaiting, ())                                                                                \
  /* Bytes of host memory copied so far: pinned (0), staged (1), by a call that waited (2). */             \
  X(unsigned long long, madeUpCopied, (int way))                                                           \
  /* The nth transfer from now on fails with the code after a part of its bytes; the context breaks. */    \
  X(void, madeUpFailTransfer, (unsigned long long nth, int code))                                          \
  /* 1: from now on transfers of pinned memory leave the second half of their bytes as they were. */       \
  X(void, madeUpLeaveOldBytes, (int on))                                                                   \
  /* 1: a query of a stream that captures, or of an event in a capture, fails, and the capture is lost. */ \
  X(void, madeUpBeStrict, (int on))                                                                        \
  /* Registering holds up all calls of its context so long, as the driver's lock does (0 at first). */     \
  X(void, madeUpHoldWhileRegistering, (unsigned long long microseconds))                                   \
  /* The pieces of work that a stream has not done. */                                                     \
  X(unsigned long long, madeUpPending, (void* stream))                                                     \
  /* Where the test can read and write the device's memory; null: not allocated. */                        \
  X(void*, madeUpDeviceBytes, (unsigned long long device))                                                 \
  /* Live registrations, cuMemHostAlloc's among them, and their bytes. */                                  \
  X(unsigned long long, madeUpRegistrations, ())                                                           \
  X(unsigned long long, madeUpRegisteredBytes, ())                                                         \
  /* The registration that holds an address. 0: none does. */                                              \
  X(int, madeUpRegistration, (const void* address, const void** begin, size_t* bytes))                     \
  /* A CUfunction for cuLaunchKernel: runs `body` with the values of so many parameters of 8 bytes. */     \
  X(void*, madeUpKernel, (void (*body)(const unsigned long long* parameters), unsigned count))

extern "C" {
#define MADE_UP_CUDA_DECLARE(result, name, parameters) result name parameters;
MADE_UP_CUDA_CONTROLS(MADE_UP_CUDA_DECLARE)
#undef MADE_UP_CUDA_DECLARE
}

namespace pinion::made_up_cuda {

/// The controls of a library that was opened; member madeUpCalls is the export of that name.
struct Library {
  void* library = nullptr;
#define MADE_UP_CUDA_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  MADE_UP_CUDA_CONTROLS(MADE_UP_CUDA_MEMBER)
#undef MADE_UP_CUDA_MEMBER
};

/// Opens the library; ends the process with a line where it cannot.
inline Library open(const char* path, int flags = RTLD_NOW | RTLD_GLOBAL) {
  Library made;
  made.library = ::dlopen(path, flags);
  if (!made.library) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    std::abort();
  }
#define MADE_UP_CUDA_FIND(result, name, parameters) \
  made.name = reinterpret_cast<result(*) parameters>(::dlsym(made.library, #name));
  MADE_UP_CUDA_CONTROLS(MADE_UP_CUDA_FIND)
#undef MADE_UP_CUDA_FIND
  return made;
}

}  // namespace pinion::made_up_cuda
