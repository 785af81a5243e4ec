#!/usr/bin/env python3
"""The Python module against the built library and command: python_test.py BUILD. Those of numpy and pandas are skipped without them."""
import ctypes
import errno
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

root = pathlib.Path(__file__).resolve().parents[2]
build = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(root / "python"))
os.environ["PATH"] = f"{build}/bin:{os.environ['PATH']}"

import pinion  # noqa: E402
from pinion import bindings  # noqa: E402

OPTIONS = "retention=leave-pinned,device=emulated,nic=none,limit=4M"
BYTES = 1 << 20


def has(module):
    try:
        __import__(module)
        return True
    except ImportError:
        return False


class Layout(unittest.TestCase):
    def test_structures_are_those_of_the_headers(self):
        known = set((root / "packaging/abi").read_text().splitlines())
        for structure in bindings.STRUCTURES:
            lines = {f"struct {structure.__name__} {ctypes.sizeof(structure)}"}
            lines |= {f"struct {structure.__name__} .{name} {getattr(structure, name).offset}" for name, _ in structure._fields_}
            listed = {line for line in known if line.split()[:2] == ["struct", structure.__name__]}
            self.assertEqual(lines, listed)

    def test_version_is_the_package_s(self):
        for project in ("pyproject.toml", "python/pyproject.toml"):
            self.assertIn(f'version = "{pinion.version()}"', (root / project).read_text())


class Library(unittest.TestCase):
    def setUp(self):
        self.session = pinion.Session(OPTIONS)
        self.addCleanup(self.session.close)
        self.domain = pinion.Domain()

    def tearDown(self):
        self.domain.close()

    def test_lease_holds_the_buffer(self):
        buffer = bytearray(BYTES)
        with self.domain.acquire(buffer, pinion.WRITE) as lease:
            keys = lease.keys()
            self.assertGreaterEqual(keys["bytes"], BYTES)
            with self.assertRaises(BufferError):
                buffer.extend(b"more")
            with self.assertRaises(pinion.Error) as refused:
                self.domain.close()
            self.assertEqual(refused.exception.errno, errno.EBUSY)
        buffer.extend(b"more")
        self.assertEqual(self.domain.statistics()["misses"], 1)

    def test_registered_buffer_is_a_hit(self):
        buffer = bytearray(BYTES)
        with self.assertRaises(pinion.Error) as refused:
            self.domain.try_acquire(buffer)
        self.assertEqual(refused.exception.errno, errno.EAGAIN)
        self.domain.acquire(buffer, pinion.WRITE).close()
        self.domain.try_acquire(buffer, pinion.WRITE).close()
        self.assertEqual(self.domain.statistics()["hits"], 1)

    def test_limit_refuses_and_lets_go_of_the_buffer(self):
        buffer = bytearray(8 * BYTES)
        with self.assertRaises(pinion.Error):
            self.domain.acquire(buffer)
        buffer.extend(b"more")
        self.assertEqual(self.domain.statistics()["bounced"], 1)

    def test_read_only_buffers_are_for_reading(self):
        self.domain.acquire(bytes(BYTES), pinion.READ).close()
        with self.assertRaises(BufferError):
            self.domain.acquire(bytes(BYTES), pinion.WRITE)

    def test_preparation(self):
        buffers = [bytearray(BYTES), bytearray(BYTES)]
        with self.domain.prepare(*buffers, access=pinion.WRITE) as prepared:
            prepared.wait()
            self.assertEqual(prepared.state()["error"], 0)
            self.assertGreaterEqual(self.domain.statistics()["registered_bytes"], 2 * BYTES)
            self.domain.try_acquire(buffers[1], pinion.WRITE).close()

    @unittest.skipUnless(has("numpy"), "numpy is not installed")
    def test_a_buffer_longer_than_a_piece_is_several_registrations(self):
        buffer = bytearray(BYTES)
        for piece_bytes, hits in ((BYTES // 4, 0), (BYTES, 1)):
            with self.domain.prepare(buffer, access=pinion.WRITE, piece_bytes=piece_bytes) as prepared:
                prepared.wait()
                before = self.domain.statistics()["hits"]
                self.domain.acquire(buffer, pinion.WRITE).close()
                self.assertEqual(self.domain.statistics()["hits"] - before, hits)
            buffer = bytearray(BYTES)

    def test_numpy_arrays(self):
        import numpy

        for order in "CF":
            array = numpy.zeros((256, 512), dtype=numpy.float64, order=order)
            with self.domain.acquire(array, pinion.WRITE) as lease:
                self.assertLessEqual(lease.keys()["address"], array.ctypes.data)
                self.assertGreaterEqual(lease.keys()["bytes"], array.nbytes)
        with self.assertRaises(BufferError):
            self.domain.acquire(array[:, ::2], pinion.WRITE)

    def test_errors_have_the_library_s_line(self):
        with self.assertRaisesRegex(pinion.Error, "no-such-device"):
            pinion.Domain("no-such-device")


class Logs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        program = ("import pinion\nwith pinion.Session(), pinion.Domain() as domain:\n  buffer = bytearray(1 << 20)\n"
                   "  for _ in range(20): domain.acquire(buffer, pinion.WRITE).close()\n")
        subprocess.run(["pinion", "run", "--device", "emulated", "--retention", "on-demand", "--log", cls.directory.name, "--",
                        sys.executable, "-c", program], check=True, capture_output=True,
                       env={**os.environ, "PYTHONPATH": str(root / "python")})
        cls.run_ = pinion.Run(cls.directory.name)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def test_report(self):
        self.assertEqual(self.run_.report["acquires"]["misses"], 20)
        with self.assertRaisesRegex(ValueError, "pinion report"):
            pinion.report("/nonexistent")

    def test_a_missing_command_is_named(self):
        with unittest.mock.patch.dict(os.environ, {"PATH": "/nonexistent"}):
            with self.assertRaisesRegex(FileNotFoundError, "`pinion`.*not on PATH"):
                pinion.report(self.directory.name)

    @unittest.skipUnless(has("pandas"), "pandas is not installed")
    def test_frames(self):
        self.assertEqual(self.run_.ranks()["acquires.total"].sum(), 20)
        self.assertEqual(self.run_.domains()["acquires.total"].sum(), 20)
        events = self.run_.events()
        self.assertEqual((events["name"] == "register").sum(), 20)
        self.assertTrue((events["seconds"] >= 0).all())
        leased = events[events["kind"] == "lease"]
        self.assertEqual(leased["bytes"].unique().tolist(), [1 << 20])
        series = self.run_.series()
        self.assertEqual(series.query("measure == 'registered'")["peak"].max(), self.run_.report["registered_bytes"]["peak"])
        self.assertEqual(len(self.run_.call_sites()), len(self.run_.report["call_sites"] or []))


unittest.main()
