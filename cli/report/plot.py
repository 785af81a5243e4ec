#!/usr/bin/env python3
"""plot DATA FILE: draws the panels of DATA, which cli/report/plot.cpp writes, to FILE (.png)."""
import json
import math
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot


def main(data, file):
    with open(data) as opened:
        plot = json.load(opened)
    panels, columns = plot["panels"], plot["columns"]
    rows = math.ceil(len(panels) / columns)
    figure, grid = pyplot.subplots(rows, columns, figsize=(6 * columns, 3.5 * rows + 1), squeeze=False)
    for axes in grid.flat[len(panels):]:
        axes.axis("off")
    shown = {}
    for axes, panel in zip(grid.flat, panels):
        for line in panel["lines"]:
            x, y = zip(*line["points"])
            bound, classes = line["is_bound"], line["classes"].split()
            shown[line["name"]] = axes.plot(
                x, y, marker="o" if panel["has_marks"] and not bound else "", markersize=3,
                linestyle="dashed" if bound else "solid" if len(classes) == 1 else "dotted" if classes[1] == "again" else "dashdot",
                color=plot["colours"][int(classes[0][1:])])[0]
        for scale, set_scale in ((panel["x_scale"], axes.set_xscale), (panel["y_scale"], axes.set_yscale)):
            if scale != "linear":
                set_scale("log", base=2 if scale == "powers of two" else 10)
        axes.set(title=panel["title"], xlabel=panel["x"], ylabel=panel["y"])
        axes.grid(True, alpha=0.3)
    figure.suptitle(plot["title"])
    figure.legend(shown.values(), shown.keys(), loc="lower center", ncol=4, fontsize="small")
    figure.tight_layout(rect=(0, 0.3 / rows, 1, 1))
    figure.savefig(file)


main(*sys.argv[1:])
