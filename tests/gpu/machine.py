"""What tests/gpu/run does with processes: variants of a program, processes that wait for their turn, time limits."""
import os
import pathlib
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import rows

# What Pinion said at the end of each variant's last run.
reports = {}

programs = pathlib.Path(__file__).resolve().parent / "programs"

# How a program runs. By hand: without Pinion, and the program pins its memory itself.
VARIANTS = {
    "plain": None,
    "hand": None,
    "default": [],
    "stage": ["--cuda", "stage"],
    "lru": ["--retention", "lru"],
    "leave-pinned": ["--retention", "leave-pinned"],
    "limit-1G": ["--limit", "1G"],
    "lru-1G": ["--limit", "1G", "--retention", "lru"],
}


class Stopped(Exception):
    """A process hangs, fails or has wrong bytes: verdict, and what is known."""

    def __init__(self, verdict, text):
        super().__init__(text)
        self.verdict = verdict


def tell(build):
    """What this machine has."""
    told = {"build": str(build), "host": platform.node(), "kernel": platform.release(), "cores": os.cpu_count()}
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    told["memory"] = f"{pages / 2**30:.0f} GiB"
    asked = subprocess.run(["sh", "-c", "nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv,noheader"],
                           capture_output=True, text=True)
    told["gpu"] = asked.stdout.strip() or "unknown: nvidia-smi gave nothing"
    test = "import torch, numpy; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"
    asked = subprocess.run([sys.executable, "-c", test], capture_output=True, text=True)
    told["torch"] = asked.stdout.strip() if asked.returncode == 0 and "True" in asked.stdout else ""
    told["programs"] = str(build / "tests" / "gpu") if (build / "tests" / "gpu" / "copies").exists() else ""
    return told


def pack(build, folder):
    """Copies what a run needs of a build, without symbols, to carry it to another machine."""
    kept = [*(f"tests/gpu/{name}" for name in ("copies", "beside", "meaning", "prepare", "random_copies")), "bin/pinion", "lib/libpinion.so.0", "lib/libpinion-preload.so"]
    for name in kept:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build / name, target)
        subprocess.run(["strip", "--strip-debug", str(target)], check=True)
    # Libraries of the command that not every machine has.
    listed = subprocess.run(["ldd", str(build / "bin" / "pinion")], capture_output=True, text=True).stdout
    for line in listed.splitlines():
        words = line.split()
        if len(words) > 2 and re.match(r"lib(dw|elf|lzma|bz2)\.so", words[0]):
            (folder / "others").mkdir(exist_ok=True)
            shutil.copy2(words[2], folder / "others" / words[0])


def surroundings(options, environment=None):
    """The environment of each program."""
    found = {**os.environ, **(environment or {})}
    others = options.build / "others"
    if others.exists():
        found["LD_LIBRARY_PATH"] = ":".join(part for part in (found.get("LD_LIBRARY_PATH"), str(others)) if part)
    return found


def command(options, variant, words):
    """The program under a variant. The first word names a program of the build, or a script of tests/gpu/programs."""
    if words[0].endswith(".py"):
        words = [sys.executable, str(programs / words[0]), *words[1:]]
    else:
        words = [str(options.build / "tests" / "gpu" / words[0]), *words[1:]]
    flags = VARIANTS[variant]
    return words if flags is None else [str(options.build / "bin" / "pinion"), "run", *flags, "--", *words]


def tail(text, lines):
    kept = [line for line in text.splitlines() if line.strip()][-lines:]
    return " / ".join(kept)[-400:] if lines <= 3 else "\n".join(kept)[-4000:]


class Process:
    """A program that waits for its turn: it says `ready`, takes `go N`, and prints N lines of numbers."""

    def __init__(self, options, variant, words, environment=None):
        self.variant, self.words = variant, words
        self.errors = tempfile.TemporaryFile("w+")
        self.child = subprocess.Popen(command(options, variant, words), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=self.errors, env=surroundings(options, environment), start_new_session=True)
        self.pending = b""

    def name(self):
        return f"{' '.join(self.words)} ({self.variant})"

    def said(self, lines=3):
        """The end of its error output."""
        self.errors.seek(0)
        return tail(self.errors.read(), lines)

    def line(self, deadline):
        while b"\n" not in self.pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.child.stdout], [], [], left)[0]:
                self.kill()
                raise Stopped("HANGS", f"{self.name()}: no answer in time; {self.said()}")
            got = os.read(self.child.stdout.fileno(), 65536)
            if not got:
                status = self.child.wait()
                raise Stopped("skipped" if status == 77 else "FAILED", f"{self.name()}: status {status}; {self.said()}")
            self.pending += got
        line, self.pending = self.pending.split(b"\n", 1)
        return line.decode(errors="replace")

    def ready(self, deadline):
        while self.line(deadline) != "ready":
            pass
        return self

    def tell(self, text):
        try:
            self.child.stdin.write((text + "\n").encode())
            self.child.stdin.flush()
        except BrokenPipeError:
            pass

    def repeat(self, count, deadline):
        """Numbers of each repetition."""
        self.tell(f"go {count}")
        return [[float(word) for word in self.line(deadline).split()] for _ in range(count)]

    def end(self, deadline):
        """Numbers that it prints at its end; raises unless its bytes were right."""
        self.tell("end")
        numbers = []
        while True:
            line = self.line(deadline)
            if line in ("verified", "WRONG"):
                break
            numbers.append([float(word) for word in line.split()])
        try:
            status = self.child.wait(max(deadline - time.monotonic(), .1))
        except subprocess.TimeoutExpired:
            self.kill()
            raise Stopped("HANGS", f"{self.name()}: does not exit; {self.said()}") from None
        if line == "WRONG":
            raise Stopped("WRONG", f"{self.name()}: wrong bytes; {self.said()}")
        if status != 0:
            raise Stopped("FAILED", f"{self.name()}: status {status}; {self.said()}")
        return numbers

    def kill(self):
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait()


def kill_all(processes):
    for process in processes:
        if process.child.poll() is None:
            process.kill()


def measure(options, variants, words_of, rounds, warm, count, deadline, at_once=True):
    """Runs the variants' programs in turn, for several rounds. Returns {variant: repetitions}, the warm ones left out.

    words_of(variant) is the program. All processes start first; with at_once False each starts in its turn. A variant that stops is
    in the second dictionary instead, with its reason."""
    wanted = [variant for variant in variants if variant in ("plain", "hand") or not options.variants
              or variant in options.variants.split(",")]
    if options.quick:
        rounds, warm, count = 2, min(warm, 2), 3
    found, stopped, all_processes = {variant: [] for variant in wanted}, {}, []
    try:
        plan = [(n, variant) for n in range(rounds) for variant in (wanted if n % 2 == 0 else wanted[::-1])]
        made = {}
        for n, variant in plan if at_once else []:
            made[n, variant] = Process(options, variant, words_of(variant))
            all_processes.append(made[n, variant])
        for process in list(made.values()):
            try:
                process.ready(deadline)
            except Stopped as reason:
                stopped.setdefault(process.variant, reason)
        for n, variant in plan:
            if variant in stopped:
                continue
            try:
                process = made.get((n, variant))
                if process is None:
                    process = Process(options, variant, words_of(variant))
                    all_processes.append(process)
                    process.ready(deadline)
                found[variant] += process.repeat(warm + count, deadline)[warm:]
                process.end(deadline)
                reports[process.name()] = process.said(lines=40)
            except Stopped as reason:
                stopped[variant] = reason
    finally:
        kill_all(all_processes)
    return {variant: values for variant, values in found.items() if variant not in stopped and values}, stopped


def output(options, variant, words, seconds):
    """Runs a program to its end. Returns its lines, and its status; None: it hung."""
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command(options, variant, words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                                 env=surroundings(options), start_new_session=True)
        try:
            text, status = child.communicate(timeout=seconds)[0], child.returncode
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            text, status = child.communicate()[0], None
        errors.seek(0)
        everything = errors.read()
    said = tail(everything, 3)
    reports[f"{' '.join(words)} ({variant})"] = tail(everything, 40)
    return text.decode(errors="replace").splitlines(), status, said


def guarded(case, options, seconds):
    """The rows of a case; a fault of the case itself is a row, too."""
    try:
        return case.body(case.name, options, time.monotonic() + seconds)
    except Stopped as reason:
        return [rows.Row(case.name, reason.verdict, note=str(reason))]
    except Exception as fault:
        traceback.print_exc()
        return [rows.Row(case.name, "FAILED", note=f"{type(fault).__name__}: {fault}")]
