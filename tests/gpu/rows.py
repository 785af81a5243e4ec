"""Rows of the table of tests/gpu/run: a case, its goal, what was measured, whether the goal is met."""
import random
import statistics

BAD = ("WRONG", "HANGS", "FAILED")


def median(values):
    return statistics.median(values)


def interval(compare, first, second, turns=1000):
    """The 95 % interval of compare(median of first, median of second), by bootstrap."""
    draw = random.Random(1)
    found = sorted(compare(median(draw.choices(first, k=len(first))), median(draw.choices(second, k=len(second))))
                   for _ in range(turns))
    return found[int(turns * .025)], found[int(turns * .975)]


def ratio(value, base):
    return value / base if base else float("inf")


def difference(value, base):
    return value - base


def short(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


class Row:
    def __init__(self, case, verdict, goal="", measured="", note="", figures=None):
        self.case, self.verdict, self.goal, self.measured, self.note = case, verdict, goal, measured, note
        self.figures = figures or {}

    def show(self):
        note = f"  {self.note}" if self.note else ""
        print(f"{self.case:<44} {self.goal:<14} {self.measured:<24} {self.verdict}{note}", flush=True)

    def as_json(self):
        return dict(vars(self))


def head():
    print(f"\n{'case':<44} {'goal':<14} {'measured (95 %)':<24} met?", flush=True)


def verdict_of(measured, low, goal, never_slower):
    if measured <= goal or (never_slower and low <= goal):
        return "met"
    return "in the interval" if low <= goal else "missed"


def compared(case, name, values, base, goal=None, kind=ratio, never_slower=False, unit="", against="plain"):
    """A row: values of a variant against those of another one."""
    low, high = interval(kind, values, base)
    measured = kind(median(values), median(base))
    sign = "×" if kind is ratio else " " + unit
    text = f"{short(measured)}{sign} ({short(low)}..{short(high)})"
    verdict = "" if goal is None else verdict_of(measured, low, goal, never_slower)
    wanted = "" if goal is None else f"≤ {goal:g}{sign} {against}"
    note = f"{short(median(values))} against {short(median(base))} {unit}, n={len(values)}/{len(base)}"
    return Row(f"{case}: {name}", verdict, wanted, text, note,
               {"measured": measured, "low": low, "high": high, "goal": goal, "values": list(values), "base": list(base),
                "unit": unit, "against": against})


def bound(case, name, value, goal, unit, note=""):
    """A row: one figure that has a bound of its own."""
    return Row(f"{case}: {name}", "met" if value <= goal else "missed", f"≤ {goal:g} {unit}", f"{short(value)} {unit}", note,
               {"measured": value, "goal": goal, "unit": unit})
