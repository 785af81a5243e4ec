#!/usr/bin/env bash
# What calls of the CUDA driver cost more beside Pinion, in instructions: exact where times vary. The driver is a stub whose functions do
# nothing. A launch passes the submission gate. Batches of 4 KiB pieces, 256 KiB apart and in any order, are put in order, closed and
# barred: a count a piece, of batches that are made again. Bounds are the counts that were measured and one tenth more.
#
# Valgrind lacks code patched at run time and userfaultfd: memory events are left to brackets.
source "$(dirname "$0")/script.bash"
command -v valgrind >/dev/null || exit 77
driver=$build/tests/ways_out

cat >"$work/calls.c" <<'EOF'
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { kMost = 100000, kApart = 256 << 10, kPiece = 4096 };
typedef unsigned long long Word;
int cuInit(unsigned);
int cuMemcpyHtoD_v2(Word, const void*, size_t);
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
int cuMemcpyBatchAsync(Word*, Word*, size_t*, size_t, void*, size_t*, size_t, size_t*, void*);
struct Side { int type; Word pointer; size_t row, layer; int location[2]; };
struct Copy { struct Side source, destination; size_t width, height, depth; int order; unsigned flags; };
int cuMemcpy3DBatchAsync(size_t, struct Copy*, size_t*, Word, void*);

static Word to[kMost], from[kMost];
static size_t sizes[kMost];
static struct Copy copies[kMost];

int main(int argc, char** argv) {
  const char* what = argv[1];
  const size_t pieces = strtoul(argv[2], NULL, 10), rounds = strtoul(argv[3], NULL, 10);
  char* memory = mmap(NULL, pieces * kApart, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (size_t i = 0; i < pieces; ++i) {
    to[i] = 0x700000000000 + i * kPiece, sizes[i] = kPiece;
    from[i] = (Word)(memory + i * 7919 % pieces * kApart);  /* 7919 is prime */
    copies[i] = (struct Copy){{1, from[i]}, {1, to[i]}, kPiece, 1, 1, 3, 0};
  }
  size_t failed;
  if (argc != 4 || memory == MAP_FAILED || cuInit(0)) return 1;
  for (size_t i = 0; i < 300; ++i) cuMemcpyHtoD_v2(to[0], memory, 1 << 20); /* Pinion serves copies from now on */
  for (size_t i = 0; i < rounds; ++i) {
    int error = *what == 'l'   ? cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)
                : *what == 'b' ? cuMemcpyBatchAsync(to, from, sizes, pieces, NULL, NULL, 0, &failed, NULL)
                               : cuMemcpy3DBatchAsync(pieces, copies, &failed, 0, NULL);
    if (error) return 1;
  }
  return 0;
}
EOF
gcc -std=gnu99 -O2 "$work/calls.c" -o "$work/calls" -L"$driver" -l:libcuda.so.1 -Wl,-rpath,"$driver" || fail "the program does not build"

# instructions WHAT PIECES ROUNDS [VARIABLE=VALUE...]
instructions() {
  local what=$1 pieces=$2 rounds=$3
  shift 3
  timeout 240 env "$@" valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no --toggle-collect=main \
    "$work/calls" "$what" "$pieces" "$rounds" 2>&1 | awk '/Collected/ {print $4}'
}
# a_round WHAT PIECES FEW MANY [VARIABLE=VALUE...]: what comes once cancels out.
a_round() {
  local what=$1 pieces=$2 few=$3 many=$4
  shift 4
  echo $((($(instructions "$what" "$pieces" "$many" "$@") - $(instructions "$what" "$pieces" "$few" "$@")) / (many - few)))
}

beside=(LD_PRELOAD="$build/lib/libpinion-preload.so" PINION=monitor=brackets)
while read -r what pieces few many bound; do
  plain=$(a_round "$what" "$pieces" "$few" "$many")
  count=$((($(a_round "$what" "$pieces" "$few" "$many" "${beside[@]}") - plain) / pieces))
  echo "$what of $pieces: $count instructions more each"
  [ "$count" -gt 0 ] && [ "$count" -le "$bound" ] || fail "$what of $pieces: '$count' instructions more each, not $bound"
done <<'EOF'
launch 1 2000 42000 176
batch 1000 10 60 550
batch 100000 2 5 459
3d 1000 10 60 682
3d 100000 2 5 590
EOF

[ "$failures" -eq 0 ]
