// The replacement of libc's syscall(): numbers that change memory go to the hooks, all others straight to the
// kernel as libc's own code would take them.
//
// In assembly because a frame of ours must not stand between such a call and the kernel: the child of a
// clone(2) or vfork(2) through syscall() returns on a stack of its own, or on the parent's before the parent.
#pragma once

extern "C" {

[[gnu::visibility("hidden")]] long pinion_syscall_entry(long number, ...);

/// Receives the marked numbers of pinion_memory_calls, with the same arguments (libc_hooks.cpp).
[[gnu::visibility("hidden")]] long pinion_memory_system_call(long number, long a0, long a1, long a2, long a3,
                                                             long a4, long a5);
}
