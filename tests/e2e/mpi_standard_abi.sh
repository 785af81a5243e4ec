#!/usr/bin/env bash
# Programs of MPI's standard ABI (MPI 5, libmpi_abi.so.1), whose handles are pointers, see what they saw alone, and each large
# transfer is counted. The library is recognised by its name, and by its symbols where it has another; also beside another MPI.
# What stands in for it here is small; tests/mpi_wheels has MPICH's own and Intel's.
source "$(dirname "$0")/script.bash"
mkdir -p "$work/lib" "$work/renamed"
cat >"$work/mpi.h" <<'END_C'
typedef struct MPI_ABI_Comm* MPI_Comm;
typedef struct MPI_ABI_Datatype* MPI_Datatype;
typedef struct MPI_ABI_Request* MPI_Request;
typedef struct { int MPI_SOURCE, MPI_TAG, MPI_ERROR, internal[5]; } MPI_Status;
#define MPI_COMM_WORLD ((MPI_Comm)0x00000101)
#define MPI_BYTE ((MPI_Datatype)0x00000247)
int MPI_Init(int*, char***), MPI_Finalize(void), MPI_Type_contiguous(int, MPI_Datatype, MPI_Datatype*), MPI_Type_commit(MPI_Datatype*);
int MPI_Type_size(MPI_Datatype, int*), MPI_Send(const void*, int, MPI_Datatype, int, int, MPI_Comm);
int MPI_Isend(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*), MPI_Wait(MPI_Request*, MPI_Status*);
int MPI_Recv(void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status*);
END_C
cat >"$work/mpi.c" <<'END_C'
// The library: each call checks that its handles came whole. Questions are Pinion's, too: they print nothing.
#include <stdio.h>
#include <stdlib.h>
#include "mpi.h"
#define TYPE ((MPI_Datatype)0x7abc00000040)
#define REQUEST ((MPI_Request)0x7abc00000080)
#define NO_REQUEST ((MPI_Request)0x00000180)
#define CALL(result, name, parameters) \
  result P##name parameters;           \
  result name parameters __attribute__((weak, alias("P" #name))); \
  result P##name parameters
static int check(int right, const char* call) { return right ? (puts(call), 0) : (printf("%s: wrong handles\n", call), exit(1), 1); }
CALL(int, MPI_Abi_get_version, (int* major, int* minor)) { return *major = 1, *minor = 0; }
CALL(int, MPI_Get_library_version, (char* text, int* length)) { return *length = sprintf(text, "MPICH Version: 5.0.2"), 0; }
CALL(int, MPI_Init, (int* argc, char*** argv)) { return check(argc && argv, "Init"); }
CALL(int, MPI_Finalize, (void)) { return check(1, "Finalize"); }
CALL(int, MPI_Type_contiguous, (int n, MPI_Datatype old, MPI_Datatype* type)) { return *type = TYPE, check(n && old == MPI_BYTE, "Type_contiguous"); }
CALL(int, MPI_Type_commit, (MPI_Datatype* type)) { return check(*type == TYPE, "Type_commit"); }
CALL(int, MPI_Type_size, (MPI_Datatype type, int* size)) { return *size = type == TYPE ? 1 << 20 : 1, type != TYPE && type != MPI_BYTE; }
CALL(int, MPI_Type_get_extent, (MPI_Datatype type, long* lower, long* extent)) { return *lower = 0, *extent = type == TYPE ? 1 << 20 : 1, 0; }
CALL(int, MPI_Type_get_true_extent, (MPI_Datatype type, long* lower, long* extent)) { return PMPI_Type_get_extent(type, lower, extent); }
CALL(int, MPI_Get_count_c, (const MPI_Status* status, MPI_Datatype type, long* count)) { return *count = status->internal[4], type != MPI_BYTE; }
CALL(int, MPI_Test_cancelled, (const MPI_Status* status, int* flag)) { return *flag = status->internal[0], 0; }
CALL(int, MPI_Send, (const void* b, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm)) { return check(b && n && type == TYPE && to + tag >= 0 && comm == MPI_COMM_WORLD, "Send"); }
CALL(int, MPI_Isend, (const void* b, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request)) { return *request = REQUEST, PMPI_Send(b, n, type, to, tag, comm); }
CALL(int, MPI_Recv, (void* b, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status)) {
  if (status) *status = (MPI_Status){.internal[4] = n << 19};  // half of what was posted arrives
  return check(b && type == TYPE && from + tag >= 0 && comm == MPI_COMM_WORLD, "Recv");
}
CALL(int, MPI_Wait, (MPI_Request* request, MPI_Status* status)) {
  if (status) *status = (MPI_Status){0};
  const int right = *request == REQUEST;
  return *request = NO_REQUEST, check(right, "Wait");
}
END_C
cat >"$work/program.c" <<'END_C'
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include "mpi.h"
int main(int argc, char** argv) {
  if (getenv("BESIDE") && !dlopen(getenv("BESIDE"), RTLD_NOW | RTLD_LOCAL)) return puts(dlerror()), 2;
  char* buffer = malloc(8 << 20);
  MPI_Datatype type;
  MPI_Request request;
  int size;
  MPI_Init(&argc, &argv);
  MPI_Type_contiguous(1 << 20, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  MPI_Type_size(type, &size);
  for (int i = 0; i < 3; ++i) {
    MPI_Send(buffer, 8, type, 0, 0, MPI_COMM_WORLD);
    MPI_Isend(buffer, 8, type, 0, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, NULL);
    MPI_Recv(buffer, 8, type, 0, 0, MPI_COMM_WORLD, NULL);
  }
  MPI_Finalize();
  return free(buffer), 0;
}
END_C
cd "$work" || exit 1
library() { gcc -shared -fPIC -O1 mpi.c -o "$1" -Wl,-soname,"$(basename "$1")"; }
library lib/libmpi_abi.so.1 && library renamed/libmpi-2f0c.so.1 || { fail "no library can be made"; exit 1; }
gcc program.c -o linked lib/libmpi_abi.so.1 -Wl,-rpath,"$work/lib" -ldl
gcc program.c -o renamed/linked renamed/libmpi-2f0c.so.1 -Wl,-rpath,"$work/renamed" -ldl
# A plug-in that brings its MPI, opened for its user alone, as Python's bindings are.
gcc -shared -fPIC -Dmain=plugin program.c -o plugin.so lib/libmpi_abi.so.1 -Wl,-rpath,"$work/lib" -ldl
cat >opens.c <<'END_C'
#include <dlfcn.h>
int main(int argc, char** argv) {
  int (*plugin)(int, char**);
  *(void**)&plugin = dlsym(dlopen("./plugin.so", RTLD_NOW | RTLD_LOCAL), "plugin");
  return plugin(argc, argv);
}
END_C
gcc opens.c -o opens -ldl

# same PROGRAM [OPTION...]
same() {
  "$1" >alone || fail "$1 alone: $(cat alone)"
  rm -rf log
  "$build/bin/pinion" run --log log "${@:2}" -- "$1" >out 2>err || fail "$*: status $?: $(cat out err)"
  diff alone out >differs || fail "$*: $(cat differs)"
  "$build/bin/pinion" report log --json >json || fail "$*: no report: $(cat err)"
  python3 -c 'import json; a = json.load(open("json"))["acquires"]; assert a["total"] == 9, a' || fail "$*: not 9 transfers"
}
for mode in '' '--front mpi' '--device pin' '--device pin --retention leave-pinned'; do
  # shellcheck disable=SC2086 # words
  for program in ./linked renamed/linked ./opens; do same $program $mode; done
done
# A library that lacks what Pinion asks of it is left alone, with a line.
mkdir lacking
sed 's/MPI_Get_count_c/MPI_Get_count_of/' mpi.c >lacking/mpi.c
gcc -shared -fPIC -I. lacking/mpi.c -o lacking/libmpi_abi.so.1 -Wl,-soname,libmpi_abi.so.1 &&
  gcc program.c -o lacking/linked lacking/libmpi_abi.so.1 -Wl,-rpath,"$work/lacking" -ldl || fail "the lacking library cannot be built"
"$build/bin/pinion" run -- lacking/linked >out 2>err || fail "lacking: status $?: $(cat out err)"
./linked | cmp -s - out && grep -q 'its calls are' err || fail "lacking: $(cat out err)"
for known in libmpi.so.40 libmpich.so.12; do
  BESIDE=$known ./linked >out 2>&1 || { echo "left out: $known is not there"; continue; }
  for program in ./linked renamed/linked ./opens; do BESIDE=$known same $program --device pin; done
done
[ "$failures" -eq 0 ]
