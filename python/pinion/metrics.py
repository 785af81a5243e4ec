"""Metrics in Prometheus' text format, for a node exporter's textfile collector, from a report. Standard library alone."""
import contextlib
import json
import os
import select
import signal
import sys

from .top import Unreadable, report_now

# Its processor time is 2 % of a core.
_SHORTEST_PAUSE, _PAUSES = 1.0, 50


def _of(*keys):
    def value(rank):
        for key in keys:
            rank = rank[key]
        return rank

    return value


# Name, type, help, value, and how the processes of a node that have no rank are one.
METRICS = [
    ("running", "gauge", "1 while the process runs", lambda rank: int(rank["running"]), max),
    ("run_seconds", "gauge", "Length of the run", _of("wall_seconds"), max),
    ("registered_bytes", "gauge", "Registered bytes, at the end of a run those left", _of("registered_now_bytes"), sum),
    ("registered_peak_bytes", "gauge", "Most registered bytes at one time", _of("registered_bytes", "peak"), sum),
    ("registered_mean_bytes", "gauge", "Registered bytes, mean over the run", _of("registered_bytes", "mean"), sum),
    ("kernel_pinned_peak_bytes", "gauge", "Most bytes that the kernel counted as pinned or locked",
     _of("kernel_pinned_peak_bytes"), sum),
    ("transfers_total", "counter", "Transfers", _of("acquires", "total"), sum),
    ("misses_total", "counter", "Transfers that registered their memory themselves", _of("acquires", "misses"), sum),
    ("waits_total", "counter", "Transfers that waited for a registration under way", _of("acquires", "waits"), sum),
    ("late_total", "counter", "Waits and misses of memory that was used before", _of("acquires", "late"), sum),
    ("bounced_total", "counter", "Transfers without room for a registration", _of("acquires", "bounced"), sum),
    ("registrations_total", "counter", "Registrations", _of("registrations"), sum),
    ("deregistrations_total", "counter", "Deregistrations", _of("deregistrations"), sum),
    ("registration_failures_total", "counter", "Registrations that the device refused", _of("registration_failures"), sum),
    ("added_seconds", "gauge", "Time that registration cost beyond leave-pinned's", _of("seconds_added"), sum),
    ("time_budget_spent_seconds", "gauge", "Time budget spent", _of("time_budget", "spent_seconds"), sum),
    ("time_budget_allowed_seconds", "gauge", "Time budget; 0: not bounded", _of("time_budget", "allowed_seconds"), sum),
    ("time_budget_by_helper_seconds", "gauge", "Of that, time of the run that the helper's work took",
     _of("time_budget", "by_helper_seconds"), sum),
]


def _label(text):
    return '"%s"' % text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def text(report):
    """Labels have no process id, which would make a series of its own for each run."""
    command = _label(report["command"])
    processes = {}
    for rank in report["per_rank"]:
        labels = '{command=%s,host=%s,rank="%d"}' % (command, _label(rank["host"]), rank["rank"])
        processes.setdefault(labels, []).append(rank)
    lines = []
    for name, kind, described, value, together in METRICS:
        lines += ["# HELP pinion_%s %s." % (name, described), "# TYPE pinion_%s %s" % (name, kind)]
        lines += ["pinion_%s%s %r" % (name, labels, together([value(rank) for rank in processes[labels]]))
                  for labels in sorted(processes)]
    lines += ["# HELP pinion_limit_bytes Limit of a process, or of all of a node if that is less; 0: none.",
              "# TYPE pinion_limit_bytes gauge", "pinion_limit_bytes{command=%s} %d" % (command, report["limit_bytes"])]
    return "\n".join(lines) + "\n"


def _write(path, content):
    """Readers see the former file or the whole new one; a pipe or a device is written to directly."""
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        return
    new = "%s.%d.new" % (path, os.getpid())
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    with open(new, "x", encoding="utf-8") as file:
        file.write(content)
    os.replace(new, path)


def _follow(command, logs, path):
    """Writes the file until standard input ends, and once more then. A file that cannot be written any more is named once."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    place, ended, fails = os.path.realpath(path), False, False  # a link keeps its place
    while True:
        begin = sum(os.times()[:4])
        try:
            _write(place, text(report_now(command, [logs])))
        except Unreadable:
            pass  # no process has a log yet
        except OSError as error:
            if not fails:
                print("pinion: metrics: %s: %s (said once)" % (path, error.strerror), file=sys.stderr)
            fails = True
        if ended:
            return
        pause = max(_SHORTEST_PAUSE, _PAUSES * (sum(os.times()[:4]) - begin))
        ended = bool(select.select([0], [], [], pause)[0])


def main(*arguments):
    if arguments:
        _follow(*arguments)
    else:
        sys.stdout.buffer.write(text(json.load(sys.stdin.buffer)).encode())
    return 0
