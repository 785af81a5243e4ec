"""The cases of tests/gpu/run, the most important first: what is correct, then what is fast."""
import concurrent.futures
import dataclasses
import re
import time
from typing import Callable

import machine
import rows

ACTING = ("default", "stage", "leave-pinned")


def wanted(options, variants):
    names = [name for name in options.variants.split(",") if name]
    return [variant for variant in variants if not names or variant in names]


def stopped_rows(case, stopped):
    return [rows.Row(f"{case}: {variant}", reason.verdict, note=str(reason)) for variant, reason in stopped.items()]


def first(values):
    return [numbers[0] for numbers in values]


def second(values):
    return [numbers[1] for numbers in values]


# ---- correct? ----

def same_output(case, options, deadline, words, end):
    """The program prints the same lines under each variant as without Pinion."""
    variants = ["plain", *wanted(options, ACTING)]
    seconds = max(deadline - time.monotonic(), 5)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        ran = dict(zip(variants, pool.map(lambda variant: machine.output(options, variant, words, seconds), variants)))
    plain, status, said = ran["plain"]
    if status == 77:
        return [rows.Row(case, "skipped", note=said)]
    found = []
    if end not in plain:
        found.append(rows.Row(f"{case}: plain", "FAILED", note=f"after {len(plain)} lines: {plain[-1:]}; status {status}; {said}"))
    for variant in variants[1:]:
        lines, status, said = ran[variant]
        pairs = [(ours, theirs) for ours, theirs in zip(lines, plain) if ours != theirs]
        verdict, note = "met", f"{len(lines)} lines"
        if pairs:
            verdict, note = "WRONG", f"{len(pairs)} lines differ: `{pairs[0][0]}` instead of `{pairs[0][1]}`"
        elif status is None or status == 3:
            verdict, note = "HANGS", f"after {len(lines)} lines: {lines[-1:]}; {said}"
        elif end not in lines and end in plain:
            verdict, note = "FAILED", f"after {len(lines)} lines: {lines[-1:]}; status {status}; {said}"
        figures = {"differ": pairs, "lines": lines, "plain": plain}
        found.append(rows.Row(f"{case}: {variant}", verdict, "same output", f"{len(pairs)} of {len(plain)} differ", note, figures))
    return found


def meaning(case, options, deadline):
    return same_output(case, options, deadline, ["meaning"], "meaning: end")


def training(case, options, deadline):
    return same_output(case, options, deadline, ["torch_training.py"], "training: end")


def random_steps(case, options, deadline):
    """A hundred thousand random steps under Pinion, by 1 to 8 threads; a few without it, to see that the steps themselves are right."""
    scale = 50 if options.quick else 1
    plan = [("plain", 8, 10000 // scale), ("default", 1, 15000 // scale), ("default", 2, 25000 // scale),
            ("default", 4, 30000 // scale), ("default", 8, 30000 // scale), ("stage", 8, 10000 // scale),
            ("leave-pinned", 8, 10000 // scale)]
    plan = [part for part in plan if part[0] == "plain" or part[0] in wanted(options, ACTING)]
    seconds = max(deadline - time.monotonic(), 5)

    def run(part):
        variant, threads, steps = part
        words = ["random_copies", "--threads", str(threads), "--steps", str(steps), "--seed", str(threads), "--patience", "15"]
        return machine.output(options, variant, words, seconds)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        ran = list(pool.map(run, plan))
    found = []
    for (variant, threads, _), (lines, status, said) in zip(plan, ran):
        counts = {name: int(value) for line in lines for name, value in re.findall(r"(\w+) (\d+)(?![\d.])", line)}
        text = f"{counts.get('steps', 0):,} steps"
        if status == 0:
            verdict, said = "met", f"{counts.get('copies', 0):,} copies compared, {counts.get('MiB', 0):,} MiB"
        elif status in (None, 3):
            verdict = "HANGS"
        elif status == 77:
            verdict = "skipped"
        else:
            verdict = "WRONG" if counts.get("stale") else "FAILED"
            text = f"stale {counts.get('stale', '?')}, errors {counts.get('errors', '?')}"
        found.append(rows.Row(f"{case}: {variant}, {threads} threads", verdict, "0 stale", text, said, counts))
    return found


# ---- PyTorch ----

def weights(case, options, deadline):
    size = ["--bytes", str(1 << 20)] if options.quick else []
    variants = ("plain", "hand", "default", "stage", "limit-1G", "lru-1G")
    found, stopped = machine.measure(
        options, variants, lambda variant: ["torch_copies.py", "weights", *size, *(["--pin"] if variant == "hand" else [])],
        rounds=2, warm=5, count=10, deadline=deadline)
    got = {variant: first(values) for variant, values in found.items()}
    goals = [("default", "hand", 1.10), ("default", "plain", .27), ("stage", "plain", .45), ("limit-1G", "plain", .45),
             ("limit-1G", "lru-1G", .8)]
    return [rows.compared(case, f"{ours} / {theirs}", got[ours], got[theirs], goal, unit="ms", against=theirs)
            for ours, theirs, goal in goals if ours in got and theirs in got] + stopped_rows(case, stopped)


def torch_pair(case, options, deadline, words, goal, unit, whole=False, warm=6):
    found, stopped = machine.measure(options, ("plain", "default", "stage"), lambda variant: ["torch_copies.py", *words],
                                     rounds=3, warm=warm, count=10, deadline=deadline)
    made = stopped_rows(case, stopped)
    base = found.pop("plain", None)
    for variant, values in found.items() if base else ():
        made.append(rows.compared(case, variant, first(values), first(base), goal if variant == "default" else None, unit=unit))
        if whole:
            made.append(rows.compared(case, f"{variant}, whole turn", second(values), second(base), unit=unit))
    return made


def batches(case, options, deadline):
    return torch_pair(case, options, deadline, ["batches"], .45, "ms", whole=True)


def results(case, options, deadline):
    return torch_pair(case, options, deadline, ["results"], .30, "ms")


def torch_small(case, options, deadline):
    return (torch_pair(f"{case} 1 MiB", options, deadline, ["small"], .65, "us", warm=150) +
            torch_pair(f"{case} 64 KiB", options, deadline, ["small", "--bytes", "65536", "--count", "64"], .9, "us", warm=150))


# ---- C programs ----

def c_pair(case, options, deadline, words, goal, unit, *, variants=("plain", "default"), rounds=3, warm=3, count=8, kind=rows.ratio,
           never_slower=False, name="", judged=("default",)):
    found, stopped = machine.measure(options, variants, lambda variant: words, rounds, warm, count, deadline)
    made = stopped_rows(f"{case} {name}".strip(), stopped)
    base = found.pop("plain", None)
    for variant, values in found.items() if base else ():
        made.append(rows.compared(case, f"{name}, {variant}".strip(", "), first(values), first(base),
                                  goal if variant in judged else None, kind, never_slower, unit))
    return made


def c_small(case, options, deadline):
    made = []
    for size, count, goal in (("1M", "16", .45), ("64K", "64", .55)):
        made += c_pair(case, options, deadline, ["copies", "turn", size, count], goal, "us", warm=300, count=20,
                       variants=("plain", "default", "stage", "leave-pinned"), name=f"{size}, {count} in turn")
    return made


def no_reuse(case, options, deadline):
    made = []
    for size in ("1M", "16M", "256M", "64K"):
        for way in ("in", "out"):
            for how in ("sync", "async"):
                if size == "256M" and options.quick:
                    continue
                made += c_pair(case, options, deadline, ["copies", "fresh", size, way, how], 1, "us", never_slower=True,
                               rounds=2, warm=2, count=6 if size == "256M" else 12, name=f"{size} {way} {how}")
    return made


def added(case, options, deadline):
    made = []
    for words in (["small", "4K"], ["small", "32K"], ["pinned", "64K", "in"], ["pinned", "64K", "out"]):
        made += c_pair(case, options, deadline, ["copies", *words], 150, "ns", kind=rows.difference, rounds=4, warm=3, count=10,
                       name=" ".join(words))
    return made


def launches(case, options, deadline):
    size = "64M" if options.quick else "8G"
    found, stopped = machine.measure(options, ["plain"], lambda variant: ["prepare", "beside", size], rounds=1, warm=1, count=20,
                                     deadline=deadline)
    made = stopped_rows(case, stopped)
    for values in found.values():
        columns = list(zip(*values))
        made.append(rows.compared(case, f"launch p99, {size} prepared", columns[0], columns[2], 2, unit="us", against="alone"))
        made.append(rows.compared(case, f"pinned copy p99, {size} prepared", columns[1], columns[3], 1.5, unit="us", against="alone"))
    return made


def beside_copies(case, options, deadline):
    size = "128M" if options.quick else "2G"
    found, stopped = machine.measure(options, ("plain", "default", "stage"), lambda variant: ["beside", "copies", size], rounds=3, warm=0,
                                     count=3, deadline=deadline)
    made = stopped_rows(case, stopped)
    base = found.pop("plain", None)
    for variant, values in found.items() if base else ():
        made.append(rows.compared(case, f"launch p99, {variant}", first(values), first(base), unit="us"))
        made.append(rows.compared(case, f"pinned copy p99, {variant}", second(values), second(base), unit="us"))
    return made


def own_register(case, options, deadline):
    size = "64M" if options.quick else "8G"
    return c_pair(case, options, deadline, ["copies", "register", size], .5, "ms", rounds=3, warm=0, count=2, name=f"{size} untouched")


def prepare(case, options, deadline):
    """Preparations of 32 GiB against what touching and registering take at best; and another process's cuMemGetInfo meanwhile."""
    size, count = ("64M", 2) if options.quick else ("32G", 2)
    floor = machine.Process(options, "plain", ["prepare", "floor", size])
    ours = machine.Process(options, "plain", ["prepare", "time", size])
    asks = machine.Process(options, "plain", ["beside", "memory-info"])
    processes = [floor, ours, asks]
    try:
        for process in processes[:2]:
            process.ready(deadline)
        base, values = [], ours.repeat(1, deadline)
        asks.ready(deadline)
        for _ in range(count):
            values += ours.repeat(1, deadline)
        asked = asks.end(deadline)[0]
        base += floor.repeat(count, deadline)
        values += ours.repeat(1, deadline)
        base += floor.repeat(1, deadline)
        ours.end(deadline)
        floor.end(deadline)
    finally:
        machine.kill_all(processes)
    return [rows.compared(case, f"{size} / floor", first(values), first(base), 1.3, unit="ms", against="floor"),
            rows.compared(case, "another thread's mmap and munmap", second(values), second(base), unit="us", against="floor"),
            rows.bound(case, "another process's cuMemGetInfo at most", asked[2], 2000, "us",
                       f"median {asked[0]:.0f}, p99 {asked[1]:.0f} us")]


@dataclasses.dataclass
class Case:
    name: str
    text: str
    seconds: float
    needs: tuple
    body: Callable


C, TORCH = ("programs",), ("torch",)
ALL = [
    Case("meaning", "what C programs rely on: same output with and without", 25, C, meaning),
    Case("random", "random steps of a correct program: no stale byte, no error, no hang", 40, C, random_steps),
    Case("training", "what PyTorch programs rely on: same output with and without", 40, TORCH, training),
    Case("weights", "12 weights of 256 MiB in turn, a product each; under a limit, too", 60, TORCH, weights),
    Case("batches", "fresh numpy batches of 64 MiB", 15, TORCH, batches),
    Case("results", "results of 256 MiB into one tensor", 15, TORCH, results),
    Case("c-small", "1 MiB, 16 in turn; 64 KiB, 64 in turn: a C program", 25, C, c_small),
    Case("torch-small", "the same in PyTorch", 25, TORCH, torch_small),
    Case("launches", "a kernel launch and a pinned copy while 8 GiB are registered", 25, C, launches),
    Case("no-reuse", "memory that is used once", 45, C, no_reuse),
    Case("added", "small copies and pinned copies: time added", 15, C, added),
    Case("prepare", "pinion_prepare of 32 GiB; cuMemGetInfo of another process meanwhile", 30, C, prepare),
    Case("own-register", "the program's own register of 8 GiB untouched", 60, C, own_register),
    Case("beside-copies", "a kernel launch and a pinned copy beside a thread that copies", 20, C, beside_copies),
]
