"""Reports of runs from their logs, by the `pinion` beside this Python or of PATH: as a dictionary, or as pandas frames.

    run = pinion.Run("logs")
    run.report["registered_bytes"]["peak"]
    run.series().query("measure == 'registered'").plot(x="seconds", y="mean")

docs/commands.md has the keys of a report."""
import json
import os
import pathlib
import subprocess
import tempfile

from .bindings import commands

MEASURES = ("registered", "oracle", "leave_pinned")


def _command(*arguments):
    try:
        done = subprocess.run([next(commands(), "pinion"), "report", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise FileNotFoundError("the command `pinion`, which reads logs, is not on PATH") from None
    if done.returncode != 0:
        raise ValueError(done.stderr.strip() or f"pinion report: status {done.returncode}")
    return done.stdout


def _paths(logs):
    return [os.fspath(log) for log in ([logs] if isinstance(logs, (str, os.PathLike)) else logs)]


def report(logs):
    """The report of one run, from a log directory, a log file, or a list of them. ValueError: the logs are unreadable."""
    return json.loads(_command(*_paths(logs), "--json"))


class Run:
    """A run by its logs. Each frame is read when it is asked for; frames need pandas."""

    def __init__(self, logs):
        self._logs = _paths(logs)
        self.report = report(self._logs)

    def _frame(self, key):
        import pandas

        return pandas.json_normalize(self.report[key] or [])

    def ranks(self):
        """A row for each rank: acquires, registered bytes, seconds added, ..."""
        return self._frame("per_rank")

    def nodes(self):
        return self._frame("nodes")

    def domains(self):
        return self._frame("domains")

    def call_sites(self):
        return self._frame("call_sites")

    def series(self):
        """Bytes over time: `host`, `rank` (missing for a whole node), `seconds`, `measure`, `peak`, `mean`."""
        import pandas

        series, rows = self.report["series"], []
        for item in [*series["nodes"], *series["per_rank"]]:
            for measure in MEASURES:
                values = item.get(measure)
                for n, (peak, mean) in enumerate(zip(values["peak"], values["mean"]) if values else ()):
                    rows.append((item["host"], item.get("rank"), n * series["bin_seconds"], measure, peak, mean))
        frame = pandas.DataFrame(rows, columns=["host", "rank", "seconds", "measure", "peak", "mean"])
        return frame.astype({"rank": "Int64"})

    def events(self):
        """A row for each recorded use, registration and memory event: `process`, `thread`, `name`, `kind`, `begin`, `seconds`, and
        what the event has of `bytes`, `address`, `outcome`, `site`, ... Times are of the run."""
        import pandas

        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, "events")
            _command(*self._logs, "--json", "--events", os.fspath(path))
            with path.open(encoding="utf-8") as lines:
                return pandas.DataFrame([_event(event) for event in map(json.loads, lines) if "kind" in event])


def _event(event):
    begin = event.pop("begin_us")
    times = {"begin": begin * 1e-6, "seconds": (event.pop("end_us", begin) - begin) * 1e-6}
    return {"process": event.pop("process"), "thread": event.pop("thread"), "name": event.pop("name"), "kind": event.pop("kind"),
            **times, **event}
