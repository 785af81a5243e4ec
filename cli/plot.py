#!/usr/bin/env python3
"""plot DATA FILE: draws the panels of DATA, which cli/plot.cpp writes, to FILE (.svg or .png)."""
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
    names = sorted({line["name"] for panel in panels for line in panel["lines"]})
    colours = {name: pyplot.get_cmap("tab20")(i % 20) for i, name in enumerate(names)}
    for axes in grid.flat[len(panels):]:
        axes.axis("off")
    shown = {}
    for axes, panel in zip(grid.flat, panels):
        for line in panel["lines"]:
            x, y = zip(*line["points"])
            shown[line["name"]] = axes.plot(x, y, marker="o", markersize=3, color=colours[line["name"]])[0]
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set(title=panel["title"], xlabel=panel["x"], ylabel=panel["y"])
        axes.grid(True, alpha=0.3)
    figure.suptitle(plot["title"])
    figure.legend(shown.values(), shown.keys(), loc="lower center", ncol=4, fontsize="small")
    figure.tight_layout(rect=(0, 0.3 / rows, 1, 1))
    figure.savefig(file)


main(*sys.argv[1:])
