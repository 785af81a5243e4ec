"""The plots of a report by matplotlib: registered memory over time, and strategies under limits. From the JSON of cli/report/report_page.h:
its texts are untrusted, so none is read as a formula. SVG has its colours by the reader's choice of light or dark."""
import io
import json
import re
import sys
import warnings

import matplotlib

from .texts import printable

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

MIB = 1 << 20
# Bounds on panels: a job may have thousands of ranks.
MOST_NODES, MOST_RANKS = 8, 16
# A limit far above everything else would flatten the plot.
_LIMIT_IN_SIGHT = 1.5
# Colours that are told apart with any colour vision (Okabe and Ito): darker on paper, lighter at night. A strategy has one in all plots.
_INK, _FAINT, _PAPER = ("#1f2328", "#e6edf3"), ("#d0d7de", "#3d444d"), ("#ffffff", "#0d1117")
_COLOURS = {"helper": ("#0072b2", "#56b4e9"), "leave-pinned": ("#d55e00", "#ff9a4d"), "oracle": ("#00805c", "#3fd0a4"),
            "on-demand": ("#a8327d", "#f09ccf"), "lru": ("#7a5195", "#c3a6f0"), "observe": ("#8a6d00", "#e8c84a"),
            "off": ("#3a86c8", "#9ecbff"), "limit": ("#5c5c5c", "#b0b0b0")}
_DASHES = ("solid", "dotted", "dashdot")
_VARIABLES = dict({"--ink": _INK, "--faint": _FAINT, "--paper": _PAPER},
                  **{"--" + name: colours for name, colours in _COLOURS.items()})
STYLE = {"axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": _FAINT[0], "axes.labelcolor": _INK[0],
         "axes.grid": True, "axes.grid.axis": "y", "grid.color": _FAINT[0], "grid.linewidth": 0.6, "axes.axisbelow": True, "xtick.color": _FAINT[0],
         "ytick.color": _FAINT[0], "xtick.labelcolor": _INK[0], "ytick.labelcolor": _INK[0], "text.color": _INK[0],
         "figure.facecolor": _PAPER[0], "axes.facecolor": "none", "legend.frameon": False, "font.size": 9, "axes.titlesize": 10,
         "axes.titleweight": "bold", "axes.titlelocation": "left", "lines.linewidth": 1.6, "lines.markersize": 3,
         "svg.fonttype": "none", "svg.hashsalt": "pinion", "path.simplify_threshold": 0.2}


class Line:
    """`strategy`: whose colour it has."""

    def __init__(self, name, x, y, strategy=None, is_bound=False):
        self.name, self.x, self.y, self.is_bound = name, x, y, is_bound
        self.strategy = strategy or name.split(",")[0]


class Panel:
    def __init__(self, title, x, y, lines, has_steps=False):
        self.title, self.x, self.y, self.lines, self.has_steps = title, x, y, lines, has_steps


def _steps(name, bins, seconds, strategy=None):
    """A bin has its value from its begin to its end."""
    edges = [n * seconds for n in range(len(bins) + 1)]
    return Line(name, edges, [value / MIB for value in bins[:1] + bins], strategy)


def _memory_panel(page, title, series, limit, helper=None):
    report = page["report"]
    seconds, measured = report["series"]["bin_seconds"], report["acts"] == "measured"
    lines = []
    if not measured and series["registered"]:  # a run that was only measured registered nothing
        lines += [_steps("this run, " + kind, series["registered"][kind], seconds, report["retention"]) for kind in ("mean", "peak")]
    if helper:
        lines.append(_steps("helper, simulated, mean", helper, seconds))
    if series["leave_pinned"]:
        lines.append(_steps("leave-pinned", series["leave_pinned"]["mean"], seconds))
        lines.append(_steps("oracle", series["oracle"]["mean"], seconds))
    most = max([max(line.y) for line in lines], default=0)
    if limit and limit / MIB <= _LIMIT_IN_SIGHT * most:
        end = max(line.x[-1] for line in lines)
        lines.append(Line("limit", [0, end], [limit / MIB] * 2, is_bound=True))
    return Panel(title, "seconds", "MiB registered", lines, has_steps=True)


def node_panels(page):
    """A panel for each node, highest peak first."""
    report = page["report"]
    series, limit = report["series"], report["limit_bytes"]
    for node, of_node in list(zip(report["nodes"], series["nodes"]))[:MOST_NODES]:
        limits = [limit * node["ranks"], series["node_limit_bytes"] or 0]
        yield _memory_panel(page, "node " + node["host"], of_node, min(filter(None, limits), default=0), page["helper"])


def rank_panels(page):
    """A panel for each rank, highest peak first; none for a single one."""
    report = page["report"]
    ranks = list(zip(report["per_rank"], report["series"]["per_rank"]))
    if len(ranks) < 2:
        return
    for rank, series in sorted(ranks, key=lambda pair: -pair[0]["registered_bytes"]["peak"])[:MOST_RANKS]:
        name = "rank %d" % rank["rank"] if rank["rank"] >= 0 else "process %d" % rank["process"]
        yield _memory_panel(page, "%s on %s" % (name, rank["host"]), series, report["limit_bytes"])


def grid_panels(page):
    """Mean registered memory and seconds added against the limit; none where no limit could bind."""
    if not any(point["limit"] for line in page["grid"] for point in line["points"]):
        return
    unlimited = max(rank["registered_bytes"]["leave_pinned_peak"] or 0 for rank in page["report"]["per_rank"])
    for title, unit, key, scale in (("Registered memory, mean", "MiB", "mean", 1 / MIB),
                                    ("Seconds added", "ms", "seconds_added", 1e3)):
        lines = [Line(line["name"], [(point["limit"] or unlimited) / MIB for point in line["points"]],
                      [point[key] * scale for point in line["points"]]) for line in page["grid"]]
        yield Panel(title, "limit of a process, MiB (last point: no limit)", unit, lines)


def _text(text, most=60):
    """Shortened, with nothing that matplotlib reads as a formula."""
    text = printable(text).replace("\n", " ")
    return (text[:most - 3] + "..." if len(text) > most else text).replace("$", r"\$")


def _draw(axes, panel):
    of_strategy = {}
    spare = [name for name in reversed(_COLOURS) if name not in {line.strategy for line in panel.lines}]
    colours = dict(_COLOURS)
    for line in panel.lines:
        if line.strategy not in colours:
            colours[line.strategy] = _COLOURS[spare.pop() if spare else "limit"]
        nth = of_strategy[line.strategy] = of_strategy.get(line.strategy, -1) + 1
        axes.plot(line.x, line.y, label=_text(line.name), color=colours[line.strategy][0], zorder=3 - nth * 0.1,
                  linestyle="dashed" if line.is_bound else _DASHES[min(nth, 2)], drawstyle="steps" if panel.has_steps else "default",
                  marker="" if panel.has_steps or line.is_bound else "o", markerfacecolor=_PAPER[0])
    axes.set_title(_text(panel.title), pad=12 + 13 * ((len(panel.lines) + 2) // 3))
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    axes.margins(x=0)
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]) if panel.lines and min(min(line.y) for line in panel.lines) < 0 else 0)
    axes.tick_params(length=0)
    if panel.lines:
        axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1), ncol=3, fontsize="small", borderaxespad=0.2, handlelength=1.6,
                    columnspacing=1.2)


def _saved(figure, kind):
    """The bytes of a picture, the same ones for the same figures."""
    out = io.BytesIO()
    nothing = {"svg": {"Date": None, "Creator": None, "Format": None, "Type": None}, "pdf": {"CreationDate": None}}
    figure.savefig(out, format=kind, dpi=150, metadata=nothing.get(kind))
    pyplot.close(figure)
    return out.getvalue()


def _themed(svg):
    """Colours by variables, and the reader's own sans serif."""
    for name, (day, _) in _VARIABLES.items():
        svg = svg.replace(day, "var(%s)" % name)
    return re.sub(r"font: ([^;\"]*?[\d.]+px) [^;\"]*", r"font: \1 system-ui, sans-serif", svg)


def svg_style():
    """The variables, by the reader's choice."""
    def values(at):
        return " ".join("%s: %s;" % (name, colours[at]) for name, colours in _VARIABLES.items())

    return (".plot { %s }\n@media (prefers-color-scheme: dark) { .plot { %s } }\n@media print { .plot { %s } }"
            % (values(0), values(1), values(0)))


def _quietly(draw, *arguments):
    """Letters that matplotlib's own font lacks are the reader's font's to show."""
    with warnings.catch_warnings(), pyplot.rc_context(STYLE):
        warnings.simplefilter("ignore")
        return draw(*arguments)


def _panel(panel):
    figure, axes = pyplot.subplots(figsize=(5, 3.1), layout="constrained")
    _draw(axes, panel)
    svg = _themed(_saved(figure, "svg").decode())
    # A part of a page has neither a document's head, nor names that another part has too.
    svg = re.sub(r"<g id=\"[^\"]*\"", "<g", svg[svg.index("<svg"):])
    size = re.search(r"viewBox=\"[^\"]*\"", svg).group(0)
    return '<svg class="plot" %s>%s' % (size, svg[svg.index(">") + 1:])


def svg_panels(panels):
    """Each panel as an <svg> element, for a page with svg_style()."""
    return [_quietly(_panel, panel) for panel in panels]


def _picture(page, kind):
    panels = [*node_panels(page), *rank_panels(page)]
    columns = 1 if len(panels) == 1 else 2
    rows = (len(panels) + columns - 1) // columns
    figure, grid = pyplot.subplots(rows, columns, figsize=(5 * columns, 3.1 * rows + 0.4), squeeze=False, layout="constrained")
    for axes in grid.flat[len(panels):]:
        axes.axis("off")
    for axes, panel in zip(grid.flat, panels):
        _draw(axes, panel)
    figure.suptitle(_text("Registered memory: " + page["report"]["command"], 110 if columns == 2 else 70), fontsize=10)
    data = _saved(figure, kind)
    if kind != "svg":
        return data
    return re.sub(r"<svg ", '<svg class="plot" ', _themed(data.decode()), 1).replace(
        "<defs>", "<style>%s</style>\n<defs>" % svg_style(), 1).encode()


def main(kind):
    sys.stdout.buffer.write(_quietly(_picture, json.load(sys.stdin.buffer), kind))
    return 0
