#!/usr/bin/env bash
# A Go program with cgo, whose runtime gives memory back by system calls of its own. Building Go's runtime takes most of a
# minute. So this runs only in longer tests, where Go is installed, and as root, which may read the page map.
source "$(dirname "$0")/script.bash"
source=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" -eq 0 ] || exit 77
case ${PINION_TEST_SCALE:-1} in 1 | 0*) exit 77 ;; esac
command -v go >"$work/where" || exit 77

mkdir "$work/program"
cat >"$work/program/main.go" <<END
package main

/*
#cgo CFLAGS: -I$source/include
#cgo LDFLAGS: -L$build/lib -lpinion -Wl,-rpath,$build/lib
#include <pinion/pinion.h>
#include <stdint.h>
static pinion_domain* domain;
static int open_domain(void) {
  int error = pinion_start("device=pin,retention=leave-pinned");
  return error ? error : pinion_domain_open(0, 0, &domain);
}
// Whether it was registered already, and the range of its registration.
static int lease(void* memory, size_t bytes, uint64_t* begin, uint64_t* length) {
  struct pinion_statistics before, after;
  struct pinion_keys keys = {.size = sizeof keys};
  pinion_lease lease = PINION_LEASE_INIT;
  pinion_statistics(domain, &before);
  if (pinion_acquire(domain, memory, bytes, PINION_ACCESS_WRITE, &lease) || pinion_lease_keys(&lease, &keys)) return -1;
  pinion_release(&lease);
  pinion_statistics(domain, &after);
  *begin = keys.address;
  *length = keys.bytes;
  return after.registrations == before.registrations;
}
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime/debug"
	"unsafe"
)

const bytes = 4 << 20

var memory []byte

const page = 4096

var pagemap, _ = os.Open("/proc/self/pagemap")

// The present physical page of each page of the range.
func frames(begin, length uintptr) []uint64 {
	entries := make([]byte, length/page*8)
	if _, err := pagemap.ReadAt(entries, int64(begin/page*8)); err != nil {
		os.Exit(3)
	}
	found := make([]uint64, length/page)
	for i := range found {
		found[i] = binary.LittleEndian.Uint64(entries[8*i:]) & (1<<55 - 1)
	}
	return found
}

// The frames that each page had when it was registered last.
var registered = map[uintptr]uint64{}

// Leases fresh memory. Was the address used before, and is its registration one of other pages?
func lease() (reused, stale bool) {
	memory = make([]byte, bytes)
	memory[0] = 1
	at := unsafe.Pointer(&memory[0])
	_, reused = registered[uintptr(at)]
	var begin, length C.uint64_t
	hit := C.lease(at, bytes, &begin, &length)
	if hit < 0 {
		os.Exit(2)
	}
	if hit == 0 {
		for i, frame := range frames(uintptr(begin), uintptr(length)) {
			registered[uintptr(begin)+uintptr(i)*page] = frame
		}
	}
	for i, frame := range frames(uintptr(at), bytes) {
		before, known := registered[uintptr(at)+uintptr(i)*page]
		stale = stale || (known && before != frame)
	}
	return reused, stale
}

func main() {
	if C.open_domain() != 0 {
		os.Exit(1)
	}
	reused, stale := 0, 0
	for i := 0; i < 30; i++ {
		again, wrong := lease()
		if again {
			reused++
		}
		if wrong {
			stale++
		}
		memory = nil
		debug.FreeOSMemory()
	}
	fmt.Println("reused", reused, "stale", stale)
}
END
cd "$work/program" && export GOCACHE=$work/cache GO111MODULE=off
go build -o program main.go || fail "go build"
for monitor in auto libc+userfaultfd; do
  PINION_TEST_MONITOR=$monitor ./program >out 2>err || fail "$monitor: status $?: $(cat err)"
  grep -q '^reused [1-9].* stale 0$' out || fail "$monitor: $(cat out)"
done
"$build/bin/pinion" doctor ./program >doctor
one_line doctor | grep -q 'code past libc: .*program calls m[a-z]* without libc' || fail "doctor: $(grep 'code past' doctor)"

[ $failures -eq 0 ] && echo passed
exit $failures
