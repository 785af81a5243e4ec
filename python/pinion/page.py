"""A report as one page of HTML, by jinja2: no network, no script. It follows the reader's choice of light or dark, fits a phone, and
prints. From the JSON of cli/report/report_page.h, whose texts are untrusted: the template escapes each."""
import json
import os
import sys

import jinja2
from markupsafe import Markup, escape

from . import plots
from .texts import bytes_text, change_text, count_text, percent_text, plural_text, printable, seconds_text, units_kept

_MOST_ROWS = 511
_TIME = [("on_demand", "registration by transfers"), ("waits", "waits"), ("bounce", "copies"), ("bookkeeping", "bookkeeping"),
         ("helper_charged", "helper")]


def _memory_tiles(who, registered, added, seconds, compares):
    """Registered memory and time, of this run or simulated. `compares`: with leave-pinned; less memory is no merit where transfers were
    refused."""
    for key, words in (("peak", "at most"), ("mean", "on average")):
        reference = registered["leave_pinned_" + key]
        beside = " (%s against leave-pinned)" % change_text(registered[key], reference) if compares and reference else ""
        yield bytes_text(registered[key]), "%sregistered %s%s" % (who, words, beside)
    yield seconds_text(added), "%sadded to %s (%s)" % (who, seconds_text(seconds), percent_text(added / seconds if seconds > 0 else 0))


def tiles(report):
    """The figures at the head: pairs of a value and its meaning."""
    registered, acquires = report["registered_bytes"], report["acquires"]
    if report["acts"] != "measured":
        yield from _memory_tiles("", registered, report["seconds_added"], report["wall_seconds"], not acquires["bounced"])
        yield count_text(acquires["misses"]), "of %s missed" % plural_text(acquires["total"], "transfer")
        yield count_text(acquires["late"]), "of them late: their memory had been used before"
        return
    for row in (report["strategies"] or {"rows": []})["rows"]:
        if row["retention"] == "helper":
            yield from _memory_tiles("simulated helper: ", row["registered_bytes"], row["seconds_added"], row["seconds"],
                                     not row["acquires"]["bounced"])
    yield bytes_text(registered["leave_pinned_peak"] or 0), "leave-pinned: all memory of transfers"
    yield count_text(acquires["total"]), "transfer recorded" if acquires["total"] == 1 else "transfers recorded"


def shares(seconds):
    """The parts of the time that a run lost: name, share."""
    parts = [(name, seconds[key]) for key, name in _TIME]
    whole = sum(part for _, part in parts)
    return [(name, part / whole) for name, part in parts] if whole > 0 else []


def _shown(table):
    """A table of any length, cut."""
    rows = table.get("rows", [])
    if len(rows) <= _MOST_ROWS:
        return table
    note = "The first %s of %s rows." % (count_text(_MOST_ROWS), count_text(len(rows)))
    return dict(table, rows=rows[:_MOST_ROWS], notes=table.get("notes", []) + [note])


def render(page):
    report = page["report"]
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(os.path.dirname(__file__)), autoescape=True, trim_blocks=True,
                                     lstrip_blocks=True,
                                     finalize=lambda value: value if isinstance(value, Markup) else escape(printable(str(value))))
    environment.filters.update(units=units_kept, seconds=seconds_text, percent=percent_text, plural=plural_text)
    drawn = {name: [Markup(svg) for svg in plots.svg_panels(panels(page))]
             for name, panels in (("nodes", plots.node_panels), ("ranks", plots.rank_panels), ("grid", plots.grid_panels))}
    return environment.get_template("page.html").render(
        report=report, reported_by=page["reported_by"], tables={name: _shown(table) for name, table in page["tables"].items()},
        plots=drawn, plot_style=Markup(plots.svg_style()), tiles=tiles(report), shares=shares(report["critical_path_seconds"]),
        most_nodes=plots.MOST_NODES, most_ranks=plots.MOST_RANKS)


def main():
    sys.stdout.buffer.write(render(json.load(sys.stdin.buffer)).encode("utf-8", "replace"))
    return 0
