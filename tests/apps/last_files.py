"""Runs a command under ptrace and notes which descriptors each of its processes has open when it ends.

The kernel stops a traced process at its exit while its descriptors are still open (PTRACE_O_TRACEEXIT), so the note needs no code in
the program. Signals pass on unchanged.
"""
import ctypes
import os
import signal
import subprocess
import time

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long
CONT, SEIZE, LISTEN = 7, 0x4206, 0x4208
FORK, VFORK, CLONE, EXIT, STOP = 1, 2, 3, 6, 128
OPTIONS = 1 << FORK | 1 << VFORK | 1 << CLONE | 1 << EXIT | 1 << 20  # the last: traced processes end with the tracer
ALL_CHILDREN = 0x40000000  # __WALL


def ptrace(request, process, data=0):
    return LIBC.ptrace(request, process, None, data)


def descriptors(process):
    """Number: target. Empty where the process is gone."""
    found = {}
    try:
        for number in os.listdir(f"/proc/{process}/fd"):
            found[int(number)] = os.readlink(f"/proc/{process}/fd/{number}")
    except OSError:
        pass
    return found


def name_of(process):
    try:
        return os.path.basename(os.readlink(f"/proc/{process}/exe"))
    except OSError:
        return "?"


def follow(process, event, sign, ends):
    """Lets a stopped process go on. `event`: why it stopped; 0: by the signal `sign`."""
    if event == EXIT and os.path.exists(f"/proc/{process}/fd"):
        group = [int(line.split()[1]) for line in open(f"/proc/{process}/status") if line.startswith("Tgid:")]
        if group == [process]:
            ends.append((name_of(process), descriptors(process)))
    if event == STOP and sign in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
        ptrace(LISTEN, process)
    else:
        ptrace(CONT, process, 0 if event else sign)


def run(command, patience, **options):
    """Its exit status as of subprocess, or "time over"; and (name of the executable, descriptors) of each process, at its end."""
    ready, go = os.pipe()

    first, ends = os.fork(), []
    if first == 0:
        try:
            os.setsid()
            os.chdir(options["cwd"])
            for number, name in enumerate(("stdin", "stdout", "stderr")):
                file = os.open(os.devnull, os.O_RDONLY) if options[name] == subprocess.DEVNULL else options[name].fileno()
                os.dup2(file, number)
            os.close(go)
            os.read(ready, 1)  # until the tracer is there
            os.closerange(3, 4096)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.execvpe(command[0], command, options["env"])
        finally:
            os._exit(127)
    os.close(ready)
    if ptrace(SEIZE, first, OPTIONS) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    os.close(go)
    status, deadline = None, time.monotonic() + patience
    while True:
        try:
            process, state = os.waitpid(-1, ALL_CHILDREN | os.WNOHANG)
        except ChildProcessError:
            return (-signal.SIGKILL if status is None else status), ends
        if process == 0:
            if time.monotonic() > deadline:
                os.killpg(first, signal.SIGKILL)
                return "time over", ends
            time.sleep(0.0005)
        elif os.WIFSTOPPED(state):
            follow(process, state >> 16, os.WSTOPSIG(state), ends)
        elif process == first:
            status = os.waitstatus_to_exitcode(state)
