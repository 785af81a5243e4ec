"""`pinion top`: a running job live in the terminal, by `pinion report --now --json`. Standard library alone."""
import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
import tty

from .texts import bytes_text, count_text, percent_text, plural_text, printable, seconds_text

# Columns of the whole table, without bars and with them; a narrower terminal gets it without the peak and the bounced.
_WHOLE, _WITH_BARS, _BAR = 84, 100, 11
_FIRST = "node, rank"
_SUMMED = ("registered", "peak", "limit", "spent", "allowed", "total", "misses", "late", "bounced")
_WAYS = ("plain", "staged", "registered")


class Unreadable(Exception):
    """The command's own line on logs that it cannot read."""


def report_now(command, logs):
    """The counters of a run's processes."""
    done = subprocess.Popen([command, "report", "--now", "--json"] + list(logs), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, error = (text.decode(errors="replace") for text in done.communicate())
    if done.returncode != 0:
        raise Unreadable(error.strip().split(": ", 1)[-1])
    return json.loads(out)


def _row(rank, limit):
    acquires, budget = rank["acquires"], rank["time_budget"]
    return dict(acquires, registered=rank["registered_now_bytes"], peak=rank["registered_bytes"]["peak"], limit=limit,
                spent=budget["spent_seconds"], allowed=budget["allowed_seconds"],
                name="  rank %d" % rank["rank"] if rank["rank"] >= 0 else "  pid %d" % rank["process"])


def rows_of(report):
    """A row for each node, and for each of its processes below it."""
    limit, node_limit = report["limit_bytes"], report["series"]["node_limit_bytes"] or 0
    hosts = {}
    for rank in sorted(report["per_rank"], key=lambda rank: (rank["host"], rank["rank"], rank["process"])):
        hosts.setdefault(rank["host"], []).append(_row(rank, limit))
    for host, ranks in hosts.items():
        node = {key: sum(rank[key] for rank in ranks) for key in _SUMMED}
        if node_limit:
            node["limit"] = min(node["limit"], node_limit)
        yield dict(node, name=host)
        yield from ranks


def _bar(row):
    """The part of the limit, or of the peak where there is none."""
    share = row["registered"] / max(row["limit"] or row["peak"], 1)
    filled = int(min(max(share, 0), 1) * _BAR + 0.5)
    return "[" + "|" * filled + " " * (_BAR - filled) + "]"


def _cells(row):
    return {_FIRST: row["name"], "of limit/peak": _bar(row), "registered": bytes_text(row["registered"]),
            "peak": bytes_text(row["peak"]), "limit": bytes_text(row["limit"]) if row["limit"] else "none",
            "transfers": count_text(row["total"]), "misses": count_text(row["misses"]), "late": count_text(row["late"]),
            "bounced": count_text(row["bounced"]),
            "budget": percent_text(max(0, row["spent"] / row["allowed"])) if row["allowed"] > 0 else "-"}


def _table(rows, left=1):
    """Lines of aligned columns: the first `left` at the left, below the first row a rule."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(cell.ljust(width) if at < left else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths)))
             for row in rows]
    return lines[:1] + ["-" * len(lines[0])] + lines[1:]


def _copies(copies):
    """The table of copies to and from GPUs; empty where there are none."""
    rows = [("direction", "way", "copies", "bytes", "speed")]
    for direction, name in (("to_gpu", "to GPU"), ("from_gpu", "from GPU")):
        for way in _WAYS if copies else ():
            of = copies[direction][way]
            if of["count"]:
                speed = "%.1f GB/s" % (of["bytes"] / of["seconds"] / 1e9) if of["seconds"] else "-"
                rows.append((name, way, count_text(of["count"]), bytes_text(of["bytes"]), speed))
    return _table(rows) + [""] if len(rows) > 1 else []


def _heading(report, columns):
    """The command is shortened to `columns` in all; 0: any number."""
    ranks = report["per_rank"]
    running = sum(rank["running"] for rank in ranks)
    state = "ended" if running == 0 else "running" if running == len(ranks) else count_text(running) + " running"
    seconds = max(rank["wall_seconds"] for rank in ranks)
    text = ": %s on %s, %s, %s" % (plural_text(len(ranks), "rank"), plural_text(len({rank["host"] for rank in ranks}), "node"),
                                   seconds_text(seconds), state)
    command = printable(report["command"]).replace("\n", " ")
    if columns and len(command) + len(text) > columns:
        command = command[:max(columns - len(text), 8) - 3] + "..."
    return command + text


def picture(report, columns=0, lines=0):
    """What fits into a terminal of that size; 0: any."""
    hidden = set()
    if columns and columns < _WHOLE:
        hidden = {"peak", "bounced"}
    if columns < _WITH_BARS:
        hidden.add("of limit/peak")
    cells = [_cells(row) for row in rows_of(report)]
    shown = [name for name in cells[0] if name not in hidden]
    # Copies stand ahead of the ranks, which may be more than there are lines.
    text = [_heading(report, columns), ""] + _copies(report["gpu_copies"])
    text += _table([shown] + [[row[name] for name in shown] for row in cells])
    if lines and len(text) > lines:
        text[lines - 1:] = [plural_text(len(text) - lines + 1, "line") + " more"]
    return [printable(line)[:columns or None] for line in text]


def coloured(line):
    if line.startswith(_FIRST):
        return "\033[1m" + line + "\033[0m"

    def bar(found):
        filled = len(found.group(1))
        colour = 31 if filled * 10 >= _BAR * 9 else 33 if filled * 10 >= _BAR * 7 else 32
        return "[\033[%dm%s\033[0m%s]" % (colour, found.group(1), found.group(2))

    return re.sub(r"\[(\|*)( *)\]", bar, line, count=1)


@contextlib.contextmanager
def _keys():
    """Keys come one by one, and are not shown. Gives whether this terminal's keys are ours."""
    try:
        if os.tcgetpgrp(0) != os.getpgrp():
            raise OSError
        before = termios.tcgetattr(0)
    except (OSError, termios.error):
        yield False
        return

    def restore(number=None, _=None):
        termios.tcsetattr(0, termios.TCSANOW, before)
        if number:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, restore)
    tty.setcbreak(0, termios.TCSANOW)
    try:
        yield True
    finally:
        restore()


def _quit_within(seconds, has_keys):
    """Waits so long, or until the user wants to quit, which it returns."""
    end = time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        if left <= 0:
            return False
        if select.select([0] if has_keys else [], [], [], left)[0] and os.read(0, 1) in (b"", b"q", b"Q"):
            return True


def _put(text):
    sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\n")
    sys.stdout.buffer.flush()


def _show_live(command, every, logs):
    """Pictures until the job has ended, or the user presses q. A log that cannot be read any more is named below the last one."""
    last, goes_on = None, True
    with _keys() as has_keys:
        while goes_on:
            size, note = os.get_terminal_size(1), []
            try:
                report = report_now(command, logs)
                last = picture(report, size.columns, max(size.lines - 1, 0))
                goes_on = any(rank["running"] for rank in report["per_rank"])
            except Unreadable as error:
                if last is None:
                    raise
                note = [printable(str(error))]
            lines = last if "NO_COLOR" in os.environ else [coloured(line) for line in last]
            # Home, the picture, and the rest of the screen cleared.
            _put("\033[H\033[J" + "\n".join(lines + note))
            if goes_on and _quit_within(every, has_keys):
                return


def main(command, every, *logs):
    try:
        if every == "once" or not sys.stdout.isatty():
            _put("\n".join(picture(report_now(command, logs))))
        else:
            _show_live(command, float(every), logs)
    except Unreadable as error:
        print("pinion top: %s" % error, file=sys.stderr)
        return 2
    return 0
