#!/usr/bin/env bash
# The C API as a library's author meets it: the header in strict C99 and in C++, the exports of libpinion.so,
# and the example. Programs built against the installed package: package.sh.
source "$(dirname "$0")/script.bash"
source=$(cd "$(dirname "$0")/../.." && pwd)

# The header alone, twice, in the strictest C there is.
printf '#include <pinion/pinion.h>\n#include <pinion/pinion.h>\npinion_lease lease = PINION_LEASE_INIT;\n' >"$work/header.c"
cp "$work/header.c" "$work/header.cpp"
gcc -std=c99 -pedantic -Wall -Wextra -Werror -I"$source/include" -c "$work/header.c" -o "$work/header.o" || fail "C99"
g++ -std=c++11 -pedantic -Wall -Wextra -Werror -I"$source/include" -c "$work/header.cpp" -o "$work/header.o" || fail "C++11"

# Public symbols: those of the header, versioned; the rest is private to the fronts of the same build.
grep -oE '^(int|const char\*) pinion_[a-z_]+\(' "$source/include/pinion/pinion.h" | grep -oE 'pinion_[a-z_]+' | sort -u >"$work/declared"
nm -D --defined-only "$build/lib/libpinion.so" >"$work/symbols"
sed -nE 's/.* T (.*)@@PINION_0\.[1234]$/\1/p' "$work/symbols" | sort >"$work/exported"
diff "$work/declared" "$work/exported" || fail "the exported calls are not the declared ones"
[ "$(wc -l <"$work/declared")" -ge 16 ] || fail "the header was not understood"
[ "$(grep -c '@@PINION_0\.1$' "$work/symbols")" -eq 15 ] || fail "programs built against 0.1 lack a symbol"
grep -vE '@@?PINION_PRIVATE$|@@PINION_0\.[1234]$| A PINION_' "$work/symbols" && fail "symbols without a version"
ldd "$build/lib/libpinion.so" | grep -E 'stdc\+\+|libgcc|liburing|libmpi' && fail "libpinion.so needs more than the C library"

# The firehose header is checked in the same ways.
sed 's/pinion.h/firehose.h/; s/^pinion_lease.*/pinion_firehose_handle handle;/' "$work/header.c" >"$work/firehose.c"
cp "$work/firehose.c" "$work/firehose.cpp"
gcc -std=c99 -pedantic -Wall -Wextra -Werror -I"$source/include" -c "$work/firehose.c" -o "$work/header.o" || fail "firehose: C99"
g++ -std=c++11 -pedantic -Wall -Wextra -Werror -I"$source/include" -c "$work/firehose.cpp" -o "$work/header.o" || fail "firehose: C++11"
grep -oE '^(int|unsigned|size_t) pinion_firehose_[a-z_]+\(' "$source/include/pinion/firehose.h" | grep -oE 'pinion_[a-z_]+' | sort -u >"$work/declared"
nm -D --defined-only "$build/lib/libpinion-firehose.so" | sed -nE 's/.* T (.*)@@PINION_FIREHOSE_0\.1$/\1/p' | sort >"$work/exported"
diff "$work/declared" "$work/exported" || fail "firehose: the exported calls are not the declared ones"
[ "$(wc -l <"$work/declared")" -ge 20 ] || fail "firehose: the header was not understood"

# The example, under its user's possible options.
example="$build/bin/examples/registration_cache"
expect() {
  local want=$1 output
  shift
  output=$(env "$@" "$example" 30 2>&1) || fail "$*: status $?"
  grep -q '^registration_cache: verified$' <<<"$output" || fail "$*: $output"
  grep -qE "$want" <<<"$output" || fail "$*: $output"
}
expect '60 acquires, 5[0-9] hits' PINION=
expect '60 acquires, 0 hits, 60 misses' PINION=retention=on-demand
expect '60 acquires' PINION=retention=helper
expect '30 bounced' PINION=limit=64K
expect '60 acquires, 0 hits, 0 misses, 0 bounced' PINION=retention=observe
expect 'verified' PINION=off
output=$(PINION=limit=much "$example" 2>&1) && fail "a bad option was accepted"
grep -q "^registration_cache: start: .*'much'" <<<"$output" || fail "$output"

grep -q '^prepare: verified$' <<<"$("$build/bin/examples/prepare" 64 2>&1)" || fail "examples/prepare"

# The example over the caller's own libfabric domain.
if [ -x "$build/bin/examples/ping" ]; then
  for provider in shm "tcp;ofi_rxm" sockets; do
    output=$(timeout 120 "$build/bin/examples/ping" 100001 "$provider" 2>&1)
    if grep -q 'no provider' <<<"$output"; then continue; fi
    grep -q '^ping: verified$' <<<"$output" || fail "examples/ping over $provider: $output"
    grep -q '98 of 100 acquires were hits$' <<<"$output" || fail "examples/ping over $provider: $output"
  done
  "$build/bin/examples/ping" 0 >/dev/null 2>&1
  [ $? -eq 2 ] || fail "examples/ping 0: not status 2"
fi

# Under valgrind, which runs one thread at a time: nothing may wait for another thread inside a system call.
if command -v valgrind >/dev/null; then
  output=$(PINION=retention=helper timeout -k 5 120 valgrind -q --tool=none "$example" 30 2>&1) || fail "valgrind: status $?"
  grep -q '^registration_cache: verified$' <<<"$output" || fail "valgrind: $output"
fi

# Loaded late, and "unloaded" while a thread that has used it lives on.
cat >"$work/late.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pinion/pinion.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
static char memory[1 << 20];
static void* user(void* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return "dlopen";
  int (*start)(const char*) = (int (*)(const char*))dlsym(library, "pinion_start");
  int (*open)(const char*, const char*, pinion_domain**) = dlsym(library, "pinion_domain_open");
  int (*acquire)(pinion_domain*, const void*, size_t, unsigned, pinion_lease*) = dlsym(library, "pinion_acquire");
  int (*release)(pinion_lease*) = dlsym(library, "pinion_release");
  int (*close)(pinion_domain*) = dlsym(library, "pinion_domain_close");
  int (*stop)(void) = dlsym(library, "pinion_stop");
  pinion_domain* domain;
  pinion_lease lease;
  if (start(0) || open(0, 0, &domain) || acquire(domain, memory, sizeof memory, PINION_ACCESS_WRITE, &lease) ||
      release(&lease) || close(domain) || stop())
    return "a call";
  dlclose(library);
  return 0;
}
int main(int argc, char** argv) {
  (void)argc;
  for (int i = 0; i < 3; ++i) {
    pthread_t thread;
    void* failed = 0;
    if (pthread_create(&thread, 0, user, argv[1]) || pthread_join(thread, &failed) || failed) return 1;
    const pid_t child = fork();
    int status = 1;
    if (child == 0) _exit(0);
    if (waitpid(child, &status, 0) != child || status) return 2;
  }
  return 0;
}
END
gcc -std=gnu11 -I"$source/include" "$work/late.c" -o "$work/late" && "$work/late" "$build/lib/libpinion.so" || fail "dlopen: status $?"

exit $((failures > 0))
