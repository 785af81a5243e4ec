"""Figures as text, in the words and units of the command (cli/text.cpp). Standard library alone."""
import math
import re

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_UNITS = re.compile(r"(?<=\d) (?=(?:%|B|[KMGTP]iB|ns|us|ms|s)(?![\w]))")


def printable(text):
    """Control characters, which neither a terminal nor XML may get, as question marks."""
    return _CONTROLS.sub("?", text)


def _figure(value):
    """Three significant digits where there are fewer before the point."""
    size = abs(value)
    return "%.*f" % (0 if size >= 99.95 or size == 0 else 1 if size >= 9.995 else 2, value)


def bytes_text(value):
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while abs(value) >= 1023.5 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return "%s %s" % ("%.0f" % value if units[0] == "B" else _figure(value), units[0])


def seconds_text(seconds):
    size = abs(seconds)
    if size == 0:
        return "0 s"
    if size < 0.9995e-6:
        return "%.0f ns" % (seconds * 1e9)
    for bound, factor, unit in ((0.9995e-3, 1e6, "us"), (0.9995, 1e3, "ms"), (math.inf, 1, "s")):
        if size < bound:
            return "%s %s" % (_figure(seconds * factor), unit)


def percent_text(share):
    if 0.9995 <= share < 1:
        return "99.9 %"
    if 0 < share < 0.5e-4:
        return "< 0.01 %"
    return _figure(share * 100) + " %"


def change_text(value, reference):
    """A value beside another: "-33 %". "-100 %" is for 0 alone."""
    change = (value / reference - 1) * 100
    text = "%+.0f %%" % change
    return "%+.1f %%" % max(change, -99.9) if value > 0 and text.startswith("-100") else text


def count_text(count):
    return format(count, ",")


def plural_text(count, one, many=None):
    return "%s %s" % (count_text(count), one if count == 1 else many or one + "s")


def units_kept(text):
    """Each unit on one line with its number."""
    return _UNITS.sub("\u00a0", text)
