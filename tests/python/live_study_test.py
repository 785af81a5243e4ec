"""scripts/live-study judges each rank's losses by that rank's own waits, and predictions by the intervals' own strays."""
import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/live-study"
loader = importlib.machinery.SourceFileLoader("live_study", str(SCRIPT))
study = importlib.util.module_from_spec(importlib.util.spec_from_loader("live_study", loader))
sys.modules["live_study"] = study
loader.exec_module(study)


def trace(*waits_us):
    """Of ranks 0, 1, …: a wait each. Processes are counted from 1 in traces."""
    events = []
    for rank, wait in enumerate(waits_us):
        events.append({"ph": "M", "name": "process_name", "pid": rank + 1, "args": {"name": f"rank {rank} on node"}})
        events.append({"ph": "X", "cat": "lease", "name": "use", "pid": rank + 1,
                       "args": {"wait_us": wait, "address": "0x1000", "bytes": 4096}})
    return {"otherData": {"events missing": 0}, "traceEvents": events}


def run(waits_us, preempted):
    ranks = [{"rank": rank, "time_budget": {"allowed_seconds": 0.020}, "critical_path_seconds": {"preempted": seconds}}
             for rank, seconds in enumerate(preempted)]
    return {"waits": study.waits_of(trace(*waits_us)), "report": {"per_rank": ranks}}


class Losses(unittest.TestCase):
    def test_a_rank_is_judged_by_its_own_waits(self):
        of_run = run([1000, 90_000], [0, 0.065])
        pinned = run([1000, 10_000], [0, 0])
        (first, _, first_preempted), (second, _, second_preempted) = study.excess_of(of_run, pinned)
        self.assertAlmostEqual(first, -0.020)
        self.assertAlmostEqual(second, 0.060)
        self.assertEqual((first_preempted, second_preempted), (0, 0.065))
        self.assertEqual(study.within_budget(of_run, pinned), [False, True])


class Steadiness(unittest.TestCase):
    def of(self, *begins):
        """Of one buffer, used at two sites in turn."""
        return study.steady_of({"traceEvents": [
            {"ph": "b", "cat": "lease", "pid": 1, "ts": at, "args": {"address": "0x1000", "site": f"line {n % 2}"}}
            for n, at in enumerate(begins)]})

    def test_intervals_are_compared_with_those_of_their_place(self):
        self.assertEqual(self.of(0, 100, 400, 500, 800, 900, 1200), [1, 1])

    def test_strays_count_by_their_size(self):
        # After the first event, from site 0 with none before it, an interval of its own. Then 300, 303, 400 and 100, 100.
        self.assertEqual(self.of(0, 100, 400, 500, 803, 903, 1303), [3 / 5, 4 / 5])

    def test_one_interval_of_a_place_judges_nothing(self):
        self.assertEqual(self.of(0, 100), [0, 0])


if __name__ == "__main__":
    unittest.main()
