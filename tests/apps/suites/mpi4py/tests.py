"""Runs mpi4py's tests and writes, in each rank, a line for each test that ran: ok NAME or failed NAME.

tests.py TESTS RESULTS ARGUMENTS...: the directory of the tests, that of the results, the arguments of runtests.py
"""

import os
import sys
import unittest

tests, results = sys.argv[1:3]
rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]


class Lines(unittest.TextTestResult):
    # Written at once: after a crash or a hang it holds the tests that passed before.
    lines = open(os.path.join(results, "rank." + rank), "w", buffering=1)

    def startTest(self, test):
        super().startTest(test)
        sys.stderr.write(f"[{rank}] {test.id()}\n")
        self.verdict = "ok"

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.verdict = "failed"

    def addError(self, test, err):
        super().addError(test, err)
        self.verdict = "failed"

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.verdict = "skipped"

    def stopTest(self, test):
        super().stopTest(test)
        if self.verdict != "skipped":
            self.lines.write(f"{self.verdict} {test.id()}\n")


unittest.TextTestRunner.resultclass = Lines
sys.path.insert(0, tests)
sys.argv[0] = os.path.join(tests, "runtests.py")
import runtests  # noqa: E402

runtests.__file__ = sys.argv[0]
sys.exit(runtests.main(sys.argv[3:]))
