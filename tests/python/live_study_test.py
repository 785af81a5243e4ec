"""scripts/live-study judges each rank's losses by that rank's own waits."""
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


if __name__ == "__main__":
    unittest.main()
