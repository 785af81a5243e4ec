#!/usr/bin/env python3
"""Sources are as clang-format leaves them, by the version that docs/internals/testing.md names: others differ."""
import concurrent.futures
import os
import re
import shutil
import subprocess

import gate

VERSION = 14
FOLDERS = ("src/", "cli/", "bench/", "papers/", "include/", "tests/", "examples/")


def main():
    tool = shutil.which(f"clang-format-{VERSION}") or shutil.which("clang-format")
    version = re.search(r"version (\d+)", subprocess.run([tool, "--version"], capture_output=True, text=True).stdout) if tool else None
    if version is None or int(version[1]) != VERSION:
        gate.skip(f"needs clang-format {VERSION} (Debian 12: clang-format)")
    paths = gate.files(FOLDERS, (".h", ".hpp", ".c", ".cpp"))

    def faults_of(part):
        done = subprocess.run([tool, "--dry-run", "--ferror-limit=1"] + part, capture_output=True, text=True, cwd=gate.root)
        lines = [line.split(": ")[0] for line in done.stderr.split("\n") if "-Wclang-format-violations" in line]
        return sorted({f"{line.rsplit(':', 2)[0]}: clang-format changes it" for line in lines})

    parts = [paths[i:i + 50] for i in range(0, len(paths), 50)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [fault for found in pool.map(faults_of, parts) for fault in found]
    gate.end(faults, f"format of {len(paths)} files")


main()
