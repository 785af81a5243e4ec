#!/usr/bin/env python3
"""scripts/paper: paper_check.py BUILD. The pipeline protocol's model by hand; a quick figure of each paper; figures whose values
follow from call sites or schemes; transfers that were measured; and bad arguments, each one line and status 2."""
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(sys.argv.pop(1)).resolve()
SCRIPT = ROOT / "scripts" / "paper"
loader = importlib.machinery.SourceFileLoader("paper", str(SCRIPT))
paper = importlib.util.module_from_spec(importlib.util.spec_from_loader("paper", loader))
loader.exec_module(paper)
PAGE, MIB = 4096, 1 << 20
# Simulations of half a minute: in longer tests.
long = unittest.skipUnless(float(os.environ.get("PINION_TEST_SCALE", 1)) > 1, "takes long: ./test --full")


def run(*arguments):
    return subprocess.run([str(SCRIPT), *map(str, arguments), "--build", str(BUILD)], capture_output=True, text=True, check=False)


class PipelineModel(unittest.TestCase):
    """By hand: a wire of 1 byte/ns, copies of 4 byte/ns, 1,000 ns a registered page."""

    def setUp(self):
        self.model = paper.Pipeline()
        vars(self.model).update(piece=2 * PAGE, chunk=PAGE, chunks=4, depth=1, register_from=3 * PAGE, network=1, memory=4,
                                latency=0, register_page=1000, register_base=0, deregister_page=0, deregister_base=500)

    def time(self, pages, pieces):
        return self.model.time(pages * PAGE, pieces)

    def test_short_messages_are_copied(self):
        # Each chunk is copied while the one before it is on the wire; the first copy is met by nothing.
        self.assertEqual(self.time(2, "unregistered"), 1024 + 2 * 4096)
        self.assertEqual(self.time(2, "passing"), 1024 + 2 * 4096)
        self.assertEqual(self.time(0, "passing"), 0)

    def test_registration_hides_behind_the_wire(self):
        # The first chunk is on the wire from 1,024 to 5,120, while 2 pages are registered until 3,024.
        self.assertEqual(self.time(3, "unregistered"), 1024 + 3 * 4096)
        self.assertEqual(self.time(3, "registered"), 1024 + 3 * 4096)
        self.model.register_page = 10000
        self.assertEqual(self.time(3, "unregistered"), 1024 + 20000 + 2 * 4096)

    def test_pieces_that_pass_are_deregistered_in_turn(self):
        # Depth 1: the second piece is registered when the first has left the wire (13,312) and is gone (13,812).
        self.assertEqual(self.time(5, "passing"), 13812 + 2000 + 2 * 4096 + 500)
        self.model.depth = 2
        self.assertEqual(self.time(5, "passing"), 1024 + 5 * 4096 + 500)

    def test_peaks_contain_the_pool(self):
        self.assertEqual(self.model.peak(2 * PAGE, 3, True), 4 * PAGE)
        self.assertEqual(self.model.peak(5 * PAGE, 3, True), 4 * PAGE + 3 * 4 * PAGE)
        self.assertEqual(self.model.peak(5 * PAGE, 3, False), 4 * PAGE + 2 * PAGE)


class Figures(unittest.TestCase):
    def rows(self, *arguments):
        """`ours` by `what`. Where a figure has a row twice, the computed one: measured ones stray."""
        made = run(*arguments, "--json")
        self.assertEqual(made.returncode, 0, made.stderr)
        figure = json.loads(made.stdout)
        self.assertEqual(figure["schema"], "pinion-paper-1")
        self.assertTrue(figure["name"] and figure["title"] and figure["kind"] and figure["how"] and figure["rows"])
        for row in figure["rows"]:
            self.assertEqual(list(row), ["what", "unit", "paper", "ours", "kind"])
        self.figure = figure
        return {row["what"]: row["ours"] for row in sorted(figure["rows"], key=lambda row: row["kind"] != "measured")}

    def papers(self):
        return {row["what"]: row["paper"] for row in self.figure["rows"] if row["paper"] is not None}

    def test_figures_of_call_sites(self):
        """The window separates CG's products from the residual; the arrays of FT's start are predicted for real uses alone."""
        windows = self.rows("--figure", "6")
        self.assertGreater(windows["a: cg:D:8: lost without a window"], 15)
        self.assertGreater(windows["b: ft:B:4, periodicity, window of 1: within 5 %"],
                           50 + windows["b: ft:B:4, periodicity, window of 128: within 5 %"])
        grouped = self.rows("--figure", "12")
        for test in ("test 1", "test 2"):
            self.assertEqual(grouped[f"{test}: peak saved"], grouped[f"{test}: peak that an oracle saves"])
            # All-to-alls bring ranks into step, whatever their noise.
            self.assertAlmostEqual(grouped[f"{test}, noise irregular: peak that an oracle saves"],
                                   grouped[f"{test}: peak that an oracle saves"], places=2)

    def test_figures_of_schemes(self):
        """The pipeline hides registration of memory that is met for the first time, and pays for it anew if it is not left
        pinned."""
        reuse = self.rows("--figure", "9")
        self.assertGreater(reuse["helper against pipeline, pinned: saved"], 50)
        self.assertGreater(reuse["4M: pipeline, not pinned over leave-pinned, a message"], 0)
        self.assertGreater(reuse["helper against leave-pinned: peak saved"], 50)
        self.assertEqual(self.papers()["helper against leave-pinned: peak saved"], 24.75)
        self.assertEqual({row["kind"] for row in self.figure["rows"] if "pipeline" in row["what"]} - {"measured"}, {"arithmetic"})
        once = self.rows("--figure", "10")
        self.assertEqual(once["4M: helper over leave-pinned, a message"], 0, "each registers every message once")
        self.assertLess(once["4M: pipeline, pinned over leave-pinned, a message"], 0)
        limit = self.rows("--figure", "3")
        self.assertGreater(limit["a rank needs"], limit["the limit"])
        overhead = self.rows("--section", "4.3")
        self.assertGreater(overhead["recording a transfer"], 0)
        self.assertEqual(self.papers()["17K, two ranks, openmpi: observe over none"], 14.02)

    @long
    def test_firehose(self):
        sets = self.rows("firehose", "--figure", "1")
        self.assertEqual(sets["100 MiB: static, a hit"], 14)
        self.assertGreater(sets["800 MiB: static, a put"], sets["800 MiB: lending, a put"])
        self.assertEqual(self.papers()["800 MiB: rendezvous, a put"], 34)

    @long
    def test_preregistration(self):
        requests = self.rows("preregistration", "--figure", "3")
        self.assertLess(requests["arena: pinion, ns"], requests["on-demand: pinion, ns"])
        self.assertEqual(self.papers()["arena: pinion, faster_than_unfaulted"], 100)

    def test_hugepages(self):
        made = run("hugepages", "--figure", "3", "--json")
        if made.returncode == 1:
            self.skipTest(made.stderr)
        self.assertEqual(made.returncode, 0, made.stderr)
        for row in json.loads(made.stdout)["rows"]:
            self.assertGreater(row["ours"], 0)

    def test_hugepages_as_measured(self):
        bandwidth = self.rows("hugepages", "--figure", "5")
        self.assertGreater(bandwidth["4M: eager, hugepages"], bandwidth["4M: eager, base pages"])
        self.assertIsNone(bandwidth["bandwidth gained by fewer translations in the NIC"], "no NIC: untried")
        programs = self.rows("hugepages", "--figure", "6")
        for program in ("fft3d", "halo", "play-ft", "play-cg", "play-mg", "play-is"):
            for part in ("communication", "computation"):
                self.assertGreater(programs[f"{program}: {part}, base pages"], 0)
        self.assertEqual(self.papers()["fft3d: communication saved"], 8)
        self.assertNotIn("play-mg: communication saved", self.papers())

    def test_text(self):
        made = run("--figure", "2")
        self.assertEqual(made.returncode, 0, made.stderr)
        lines = made.stdout.splitlines()
        self.assertTrue(lines[0].startswith("Figure 2: "))
        self.assertRegex(lines[3], r"^communication takes longer without leave-pinned +% +25\.83 +10\.97$")


class MeasuredTransfers(unittest.TestCase):
    """By hand: 8 of 12 MiB are saved, a third of the time is added."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.file = Path(self.directory.name) / "transfers.json"

    def write(self, text):
        self.file.write_text(text, encoding="utf-8")

    def ours(self, *arguments):
        made = run(*arguments, "--from", self.file, "--json")
        self.assertEqual(made.returncode, 0, made.stderr)
        return {row["what"]: row["ours"] for row in json.loads(made.stdout)["rows"]}

    def test_rows(self):
        rows = [{"provider": "shm", "case": case, "subject": subject, "metric": metric, "value": value}
                for case, subject, metric, value in (
                    ("reuse-4M", "helper", "registered_peak_bytes", 4 * MIB),
                    ("reuse-4M", "leave-pinned", "registered_peak_bytes", 12 * MIB),
                    ("reuse-17K", "helper", "latency_us", 12), ("reuse-17K", "leave-pinned", "latency_us", 9),
                    ("reuse-17K", "everything-registered", "latency_us", 8), ("reuse-5M", "on-demand", "latency_us", 5),
                    ("reuse-5M", "leave-pinned", "latency_us", 4), ("no-reuse-4M", "helper", "registered_peak_bytes", 4 * MIB),
                    ("no-reuse-4M", "pipeline-pinned", "registered_peak_bytes", 10 * MIB))]
        rows.append({"provider": "the library's own", "case": "reuse-4M", "subject": "openmpi", "metric": "latency_us", "value": 1})
        self.write(json.dumps({"schema": "pinion-bench-1", "bench": "transfers", "rows": rows}))
        reuse = self.ours("--figure", "9")
        self.assertAlmostEqual(reuse["helper against leave-pinned: peak saved"], 100 * 2 / 3)
        self.assertIsNone(reuse["helper against pipeline, pinned: saved"])
        self.assertAlmostEqual(reuse["17K: helper over leave-pinned, a message"], 100 / 3)
        self.assertEqual(self.ours("--figure", "10")["peak of pipeline, pinned, over helper's"], 2.5)
        self.assertAlmostEqual(self.ours("--figure", "2")["communication takes longer without leave-pinned"], 25)
        self.assertEqual(self.ours("--section", "4.3")["17K: helper over everything registered, a message"], 50)

    def test_a_real_bench(self):
        settings = Path(self.directory.name) / "settings.conf"
        settings.write_text(paper.UNBOUNDED)
        made = subprocess.run([str(BUILD / "bin/pinion"), "bench", "transfers", "--size", "17K,4M", "--rounds", "1", "--json"],
                              capture_output=True, text=True, check=False, env={**os.environ, "PINION_CONFIG": str(settings)})
        self.assertEqual(made.returncode, 0, made.stderr)
        values = {}
        for row in json.loads(made.stdout)["rows"]:
            if "library" not in row["provider"]:
                values[row["case"], row["subject"], row["metric"]] = row["value"]
        if not values:
            self.skipTest("no provider of libfabric")
        self.write(made.stdout)

        def over(case, of, below, metric):
            return values[case, of, metric] / values[case, below, metric]
        self.assertGreater(over("no-reuse-4M", "leave-pinned", "helper", "registered_peak_bytes"), 1.1, "it lets buffers go")
        self.assertAlmostEqual(self.ours("--figure", "10")["peak of leave-pinned over helper's"],
                               over("no-reuse-4M", "leave-pinned", "helper", "registered_peak_bytes"))
        self.assertAlmostEqual(self.ours("--figure", "9")["17K: helper over leave-pinned, a message"],
                               100 * (over("reuse-17K", "helper", "leave-pinned", "latency_us") - 1))
        self.assertAlmostEqual(self.ours("--section", "4.3")["4M: helper over everything registered, a message"],
                               100 * (over("reuse-4M", "helper", "everything-registered", "latency_us") - 1))

    def test_damaged_files(self):
        for wrong in ("", "{", "[1]", '{"schema": "pinion-bench-1", "bench": "hit", "rows": []}',
                      '{"schema": "pinion-bench-1", "bench": "transfers", "rows": [{}]}',
                      '{"schema": "pinion-bench-1", "bench": "transfers", "rows": []}'):
            self.write(wrong)
            made = run("--figure", "9", "--from", self.file)
            self.assertEqual((made.returncode, made.stdout, made.stderr.count("\n")), (2, "", 1), made.stderr)
            self.assertIn(str(self.file), made.stderr)


class Claims(unittest.TestCase):
    def test_a_line_each(self):
        made = paper.result("Figure 0", "title", "a machine of two cores", [
            ("peak saved", "%", 20, 30), ("a plot", "%", None, 1), ("bytes", "", 4, 2, "measured"), ("absent", "us", 7, None)])
        self.assertEqual(list(paper.claims("firehose", made)), [
            "firehose, Figure 0, peak saved: 20.00 % in the paper, ours 30.00, 1.50 of it; simulated: a machine of two cores.",
            "firehose, Figure 0, bytes: 4.00 in the paper, ours 2.00, 0.50 of it; measured: a machine of two cores.",
            "firehose, Figure 0, absent: 7.00 us in the paper, ours not to be had; simulated: a machine of two cores."])

    def test_documents_have_the_figures_that_were_kept(self):
        whole, full = ((ROOT / "docs" / "internals" / page).read_text() for page in ("helper-threads.md", "paper-figures.md"))
        for number in ("2", "9", "10"):
            rows = paper.kept(number)
            self.assertTrue(rows)
            for what, unit, theirs, ours, _ in rows:
                if theirs is not None:
                    line = f"{what}, measured | {unit} | {theirs:.2f} | {ours:.2f} |"
                    self.assertIn(line, whole)
                    self.assertIn(line, full)

    def test_the_placement_page_has_the_programs_that_were_kept(self):
        page = (ROOT / "docs" / "internals" / "placement.md").read_text()
        values = paper.kept_values("programs")
        for program, subject, metric in values:
            if subject == "base-pages" and metric.endswith("_s"):
                both = (values[program, one, metric] for one in ("base-pages", "pinion"))
                self.assertIn(" / ".join(f"{value:.3f}".removeprefix("0") for value in both), page, f"{program}, {metric}")


class Arguments(unittest.TestCase):
    def test_bad_ones(self):
        for arguments, reason in (
                (("--figure", "4"), "valid: 2, 3, 5, 6, 8, 9, 10, 11, 12, 13, 14"), (("--table", "0"), "valid: 1, 2, 3, 4"),
                (("--section", "4"), "valid: abstract, 4.3"), (("--figure", "2", "--all"), "not allowed with"), ((), "required"),
                (("firehose", "--section", "1"), "valid: none"), (("nobody", "--all"), "invalid choice"),
                (("--figure", "3", "--from", "file"), "valid: --figure 2, --figure 9"),
                (("--all", "--from", "file"), "--from goes with"), (("--measure", "--from", "file"), "--from goes with"), (("--figure", "9", "--from", "nowhere"), "No such file")):
            made = run(*arguments)
            self.assertEqual((made.returncode, made.stdout, made.stderr.count("\n")), (2, "", 1), made.stderr)
            self.assertIn(reason, made.stderr)


unittest.main()
