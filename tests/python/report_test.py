#!/usr/bin/env python3
"""The parts of `pinion` in Python, by the built command on logs of two ranks: report_test.py BUILD. Page and plots are skipped without
matplotlib and jinja2."""
import copy
import html.parser
import json
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import tempfile
import termios
import unittest
import xml.etree.ElementTree

root = pathlib.Path(__file__).resolve().parents[2]
build = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(root / "python"))
os.environ["PATH"] = f"{build}/bin:{os.environ['PATH']}"

from pinion import metrics, texts, top, trace  # noqa: E402

try:
    from pinion import page, plots
except ImportError:
    page = None

HOSTILE = "./app <script>alert(1)</script> \"a\" & 'b' \u00e9 \\ $x^2$ $\\frac{1}{2}$ \x07 {{ 7 * 7 }}"
RANK = ("import pinion, time\nwith pinion.Session(), pinion.Domain() as domain:\n  buffers = [bytearray(1 << 20) for _ in range(4)]\n"
        "  for turn in range(30):\n    for buffer in buffers:\n      domain.acquire(buffer, pinion.WRITE).close()\n      time.sleep(.002)\n")
BOTH = ("for rank in 0 1; do OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
        "OMPI_COMM_WORLD_LOCAL_RANK=$rank \"$@\" & done; wait")
VOID = {"meta", "br"}


def pinion(*arguments, status=0, **options):
    done = subprocess.run(["pinion", *arguments], capture_output=True, text=True, check=False, **options)
    if done.returncode != status:
        raise AssertionError(f"status {done.returncode}: {done.stderr}")
    return done


class Markup(html.parser.HTMLParser):
    """Elements that are closed in order, their attributes, and the text in them."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            raise AssertionError(f"</{tag}> closes nothing")

    def handle_data(self, data):
        self.texts.append(data)


class OfARun(unittest.TestCase):
    """One run of two ranks: its logs, its report, and its counters alone."""

    @classmethod
    def setUpClass(cls):
        if hasattr(OfARun, "root"):
            return
        directory = tempfile.TemporaryDirectory()
        unittest.addModuleCleanup(directory.cleanup)
        OfARun.root = pathlib.Path(directory.name)
        OfARun.logs = str(OfARun.root / "logs")
        pinion("run", "--device", "emulated", "--minimum-gain", "0", "--limit", "64M", "--log", OfARun.logs, "--", "sh", "-c", BOTH, "sh",
               sys.executable, "-c", RANK, env={**os.environ, "PYTHONPATH": str(root / "python")})
        OfARun.report = json.loads(pinion("report", OfARun.logs, "--json").stdout)
        OfARun.now = json.loads(pinion("report", OfARun.logs, "--json", "--now").stdout)

    def written(self, option, name):
        """What the command writes by that option."""
        pinion("report", self.logs, option, str(self.root / name))
        self.assertEqual([file for file in self.root.iterdir() if file.suffix == ".new"], [])
        return (self.root / name).read_bytes()

    def changed(self, report, **changes):
        return {**copy.deepcopy(report), **changes}


class Texts(unittest.TestCase):
    def test_figures_have_three_digits_and_a_unit(self):
        self.assertEqual([texts.bytes_text(value) for value in (0, 512, 1023.6, 33.5 * 2**20)], ["0 B", "512 B", "1.00 KiB", "33.5 MiB"])
        self.assertEqual([texts.seconds_text(value) for value in (0, 2e-7, 0.0409, 5.38, -1.5)],
                         ["0 s", "200 ns", "40.9 ms", "5.38 s", "-1.50 s"])
        self.assertEqual([texts.percent_text(share) for share in (0, 1e-5, 0.0076, 0.99999, 1)],
                         ["0 %", "< 0.01 %", "0.76 %", "99.9 %", "100 %"])
        self.assertEqual([texts.change_text(value, 100) for value in (67, 0.001, 0)], ["-33 %", "-99.9 %", "-100 %"])
        self.assertEqual(texts.units_kept("64.0 MiB, 3 sites"), "64.0\u00a0MiB, 3 sites")


class Metrics(OfARun):
    def test_the_file_is_in_prometheus_format(self):
        text = self.written("--prometheus", "pinion.prom").decode()
        self.assertEqual(text, metrics.text(self.report))
        sample = re.compile(r'[a-z_]+\{[a-z]+="([^"\\]|\\.)*"(,[a-z]+="([^"\\]|\\.)*")*\} -?[0-9.e+-]+')
        comment = re.compile("# (HELP [a-z_]+ .+|TYPE [a-z_]+ (gauge|counter))")
        series = [line.rsplit(" ", 1)[0] for line in text.splitlines() if line[0] != "#"]
        self.assertEqual(len(series), len(set(series)))
        for line in text.splitlines():
            self.assertRegex(line, (comment if line[0] == "#" else sample).pattern + "$")
        self.assertIn('rank="1"} 120\n', text)

    def test_texts_are_quoted_and_processes_without_a_rank_are_one(self):
        report = self.changed(self.now, command='./app "a\\b"\n')
        for rank in report["per_rank"]:
            rank["rank"] = -1
        text = metrics.text(report)
        self.assertIn('pinion_transfers_total{command="./app \\"a\\\\b\\"\\n",host=', text)
        self.assertIn('rank="-1"} 240\n', text)


class Trace(OfARun):
    def test_a_trace_has_ranks_counters_and_closed_spans(self):
        made = json.loads(self.written("--trace", "trace.json"))
        self.assertEqual(made["otherData"], {"events missing": 0})
        events = made["traceEvents"]
        names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.assertEqual([name.split(" on ")[0] for _, name in sorted(names.items())], ["rank 0", "rank 1"])
        counters = {event["name"] for event in events if event["ph"] == "C"}
        self.assertEqual(counters, {"registered bytes", "leave-pinned bytes", "oracle bytes", "limit bytes"})
        opened = {}
        for event in events:
            span = event.get("cat"), event.get("id")
            if event["ph"] == "b":
                self.assertNotIn(span, opened)
                opened[span] = event["ts"]
            elif event["ph"] == "e":
                self.assertLessEqual(opened.pop(span), event["ts"])
            elif event["ph"] == "X":
                self.assertGreaterEqual(event["dur"], 0)
        self.assertEqual(opened, {})
        self.assertEqual({event["args"]["name"] for event in events if event["name"] == "thread_name"} & {"helper", "thread 1"},
                         {"helper", "thread 1"})

    def test_a_late_transfer_is_marked_and_what_is_missing_is_told(self):
        process = {"process": 1, "name": "rank 0 on a", "events_missing": 4, "helper_thread": 9, "counters": {}}
        late = {"process": 1, "thread": 1, "kind": "lease", "name": "MPI_Send", "begin_us": 1, "end_us": 3, "wait_us": 2.0, "late": True}
        missing = []
        made = list(trace.trace_events([json.dumps(process), json.dumps(late)], missing))
        self.assertEqual(missing, [4])
        self.assertEqual([event["args"] for event in made if event["name"] == "late"], [{"call": "MPI_Send", "wait_us": 2.0}])
        self.assertIn({"labels": "4 events are missing"}, [event.get("args") for event in made])


class Top(OfARun):
    def test_a_picture_has_nodes_and_ranks(self):
        lines = pinion("top", self.logs, "--once").stdout.splitlines()
        self.assertEqual(lines, top.picture(self.now))
        self.assertRegex(lines[0], r"2 ranks on 1 node, .*s, ended$")
        self.assertEqual([line.split()[:2] for line in lines[5:]], [["rank", "0"], ["rank", "1"]])
        self.assertIn("128 MiB", lines[4], "the node's limit is the sum of its ranks'")
        self.assertLessEqual(max(map(len, lines[1:])), 100)

    def test_a_limit_of_the_node_is_shown_once(self):
        report = self.changed(self.now)
        report["series"]["node_limit_bytes"] = 64 << 20
        self.assertNotIn("128 MiB", "\n".join(top.picture(report)))

    def test_a_picture_fits_its_terminal(self):
        for columns, lines in ((120, 40), (80, 24), (30, 4)):
            shown = top.picture(self.changed(self.now, command="./app " + "word " * 40), columns, lines)
            self.assertLessEqual(max(map(len, shown)), columns)
            self.assertLessEqual(len(shown), lines)
        self.assertRegex(shown[-1], "lines more")

    def test_copies_of_gpus_stand_above_the_ranks(self):
        none = {"count": 0, "bytes": 0, "seconds": 0}
        copies = {"to_gpu": {"plain": none, "staged": none, "registered": {"count": 200, "bytes": 4 << 30, "seconds": 0.1}},
                  "from_gpu": {"plain": {"count": 14, "bytes": 2 << 30, "seconds": 0}, "staged": none, "registered": none}}
        lines = top.picture(self.changed(self.now, gpu_copies=copies))
        self.assertEqual(lines[2:6], ["direction         way  copies     bytes      speed", "-" * 50,
                                      "to GPU     registered     200  4.00 GiB  42.9 GB/s", "from GPU        plain      14  2.00 GiB          -"])

    def test_errors_are_the_command_s(self):
        self.assertEqual(pinion("top", "/absent", status=2).stderr, "pinion top: /absent: No such file or directory\n")
        self.assertIn("--every: '1' is no time", pinion("top", self.logs, "--every", "1", status=2).stderr)

    def test_a_text_of_a_log_gives_the_terminal_no_orders(self):
        lines = top.picture(self.changed(self.now, command="./app \x1b[2J\x9b"))
        self.assertNotIn("\x1b", "".join(lines))
        self.assertIn("./app ?[2J?", lines[0])


class Live(OfARun):
    """`top` in a terminal, of a command that gives made reports."""

    def setUp(self):
        self.made, self.command = self.root / "made.json", self.root / "pinion"
        self.command.write_text(f"#!/bin/sh\nexec cat {self.made}\n")
        self.command.chmod(0o755)
        self.show(3 << 20, True)
        self.text = b""
        child, self.terminal = pty.fork()
        if child == 0:
            os.environ.pop("NO_COLOR", None)
            os.execv(sys.executable, [sys.executable, str(root / "python/pinion"), "top", str(self.command), "0.01", "logs"])
        self.child = child
        termios.tcsetwinsize(self.terminal, (40, 120)) if hasattr(termios, "tcsetwinsize") else None
        self.addCleanup(os.close, self.terminal)

    def show(self, registered, running):
        report = self.changed(self.now, limit_bytes=4 << 20)
        for rank in report["per_rank"]:
            rank.update(registered_now_bytes=registered, running=running)
        new = self.root / "made.new"
        new.write_text(json.dumps(report))
        new.replace(self.made)

    def wait_for(self, text):
        while text not in self.text.rsplit(b"\033[H\033[J", 2)[-2:][0] + self.text.rsplit(b"\033[H\033[J", 1)[-1]:
            self.assertTrue(select.select([self.terminal], [], [], 60)[0], self.text)
            try:
                self.text += os.read(self.terminal, 4096)
            except OSError:  # the command has ended
                self.assertIn(text, self.text)
                return

    def status(self):
        return os.WEXITSTATUS(os.waitpid(self.child, 0)[1])

    def test_it_follows_a_run_to_its_end(self):
        self.wait_for(b"3.00 MiB")
        self.show(1 << 20, True)
        self.wait_for(b"1.00 MiB")
        self.show(1 << 20, False)
        self.wait_for(b"ended")
        self.assertEqual(self.status(), 0)

    def test_it_has_colours_and_ends_at_a_key(self):
        self.show(4 << 20, True)
        self.wait_for(b"\033[1mnode, rank")
        self.wait_for(b"4.00 MiB")
        if hasattr(termios, "tcsetwinsize"):
            self.wait_for(b"[\033[31m|||||||||||\033[0m]")
        os.write(self.terminal, b"xq")
        self.assertEqual(self.status(), 0)


@unittest.skipUnless(page, "matplotlib or jinja2 is not installed")
class Page(OfARun):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # The JSON between both, as the command hands it over: a part that keeps it, in the place of Python's.
        parts = cls.root / "share/pinion/python/pinion"
        parts.mkdir(parents=True)
        (parts / "__main__.py").write_text("import sys\nsys.stdout.write(sys.stdin.read())\n")
        (cls.root / "bin").mkdir()
        command = cls.root / "bin/pinion"
        command.write_bytes((build / "bin/pinion").read_bytes())
        command.chmod(0o755)
        subprocess.run([command, "report", cls.logs, "--html", cls.root / "page.json"], check=True, stdout=subprocess.DEVNULL)
        cls.page = json.loads((cls.root / "page.json").read_text())

    def test_a_page_has_every_part_and_loads_nothing(self):
        text = self.written("--html", "page.html").decode()
        markup = Markup(text)
        self.assertEqual(markup.open, [])
        self.assertFalse(markup.tags & {"script", "link", "img", "iframe", "object", "image"})
        self.assertNotRegex(text, r"https?:|@import|url\((?!#)")
        for part in ("Registered memory over time", "leave-pinned", "oracle", "Ranks over time", "Time lost to registration",
                     "Prediction of the next use", "What each strategy would hold and cost", "What if: strategies, limits and time budgets",
                     "Call sites", "Transfers", "Ranks", "Run", "@media print", "prefers-color-scheme: dark", "width=device-width"):
            self.assertIn(part, text)
        self.assertEqual(text.count("<svg"), 5)

    def test_texts_of_logs_are_neither_markup_nor_formulas(self):
        made = copy.deepcopy(self.page)
        made["report"]["command"] = HOSTILE
        made["report"]["verdict"]["advice"] = [{"text": HOSTILE, "command": HOSTILE}]
        for node in (*made["report"]["nodes"], *made["report"]["per_rank"]):
            node["host"] = HOSTILE
        for table in made["tables"].values():
            table["title"] = HOSTILE
            table["rows"] = [[HOSTILE for _ in row] for row in table.get("rows", [])]
        text = page.render(made)
        markup = Markup(text)
        shown = HOSTILE.replace("\x07", "?")
        self.assertNotIn("script", markup.tags)
        self.assertEqual(markup.open, [])
        self.assertGreater(markup.texts.count(shown), 20)
        self.assertIn(("data-name", "peak"), markup.attributes)
        self.assertTrue(any(text.startswith("node ./app <script>alert(1)</script>") for text in markup.texts), "a plot's title")

    def test_a_strategy_has_one_colour_in_all_plots(self):
        colours = {}
        for panel in (*plots.node_panels(self.page), *plots.rank_panels(self.page), *plots.grid_panels(self.page)):
            svg = plots.svg_panels([panel])[0]
            for line in panel.lines:
                self.assertIn(f"var(--{line.strategy})", svg)
                colours.setdefault(line.strategy, set()).add(line.strategy)
            self.assertNotIn("#0072b2", svg, "not by the reader's choice")
        self.assertLessEqual({"helper", "leave-pinned", "oracle"}, set(colours))

    def test_a_run_that_was_only_measured_held_nothing_itself(self):
        made = copy.deepcopy(self.page)
        made["report"]["acts"], made["helper"] = "measured", [1 << 20] * 8
        text = page.render(made)
        self.assertNotIn("this run,", text)
        self.assertIn("helper, simulated, mean", text)
        self.assertIn("simulated helper: registered at most", text)

    def test_less_memory_is_no_merit_where_transfers_were_refused(self):
        acquires = {**self.page["report"]["acquires"], "bounced": 1}
        self.assertNotIn("against leave-pinned)", "".join(meaning for _, meaning in page.tiles(
            {**self.page["report"], "acquires": acquires})))

    def test_what_lacks_events_is_no_plot(self):
        made = copy.deepcopy(self.page)
        series = made["report"]["series"]
        for part in (*series["nodes"], *series["per_rank"]):
            part.update(oracle=None, leave_pinned=None)
        for part in (*made["report"]["nodes"], *made["report"]["per_rank"], made["report"]):
            part["registered_bytes"].update(oracle_peak=None, oracle_mean=None, leave_pinned_peak=None, leave_pinned_mean=None)
        self.assertIn("this run, mean", page.render(made))

    def test_a_job_of_thousands_has_a_page(self):
        made = copy.deepcopy(self.page)
        for of in (made["report"], made["report"]["series"]):
            of["per_rank"] = of["per_rank"] * 600
        made["tables"]["ranks"]["rows"] *= 600
        text = page.render(made)
        self.assertIn("Ranks over time, the 16 of 1200 with the highest peaks", text)
        self.assertIn("The first 511 of 1,200 rows.", text)

    def test_plots_are_pictures(self):
        svg = self.written("--plot", "plot.svg")
        self.assertEqual(xml.etree.ElementTree.fromstring(svg).tag, "{http://www.w3.org/2000/svg}svg")
        for part in ("rank 0 on ", "rank 1 on ", "this run, mean", "leave-pinned", "oracle", "MiB registered", "prefers-color-scheme: dark"):
            self.assertIn(part, svg.decode())
        self.assertEqual(svg, self.written("--plot", "plot.svg"), "the same figures are another picture")
        self.assertEqual(self.written("--plot", "plot.png")[:4], b"\x89PNG")
        self.assertEqual(self.written("--plot", "plot.pdf")[:4], b"%PDF")

    def test_an_unknown_kind_of_plot_is_refused_before_long_work(self):
        self.assertIn("'plot.gif' ends in neither .svg nor .png nor .pdf", pinion("report", self.logs, "--plot", "plot.gif", status=2).stderr)


class WithoutPackages(OfARun):
    def test_one_line_says_what_to_install(self):
        (self.root / "sitecustomize.py").write_text("import sys\nsys.modules['jinja2'] = None\n")
        done = pinion("report", self.logs, "--html", str(self.root / "none.html"), status=2,
                      env={**os.environ, "PYTHONPATH": str(self.root)})
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr, "pinion report: --html needs Python with matplotlib and jinja2 (Debian: apt-get install "
                         "python3-matplotlib python3-jinja2; pip: pinion-rdma[report])\n")
        self.assertFalse((self.root / "none.html").exists())


unittest.main()
