#!/usr/bin/env python3
"""lint.py [--all] BUILD: clang-tidy's checks (.clang-tidy) find nothing in the lines that changed: in the working tree, or else in
the last commit. `--all` looks at each source whole, which takes hours."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import gate

VERSION = 14
# Addresses are numbers here (base/range.h), and become pointers wherever memory is touched.
CHECKS = "-*,bugprone-*,-bugprone-easily-swappable-parameters,-bugprone-reserved-identifier,-bugprone-implicit-widening-of-multiplication-result,performance-*,-performance-no-int-to-ptr,readability-identifier-naming"
MOST = 6  # files, so that the gate stays short; the rest has its turn under --all


def changed_lines(revision):
    """Ranges of new lines by source, since the revision."""
    ranges, path = {}, None
    for line in (gate.git("diff", "-U0", revision, "--", "src", "cli") or "").split("\n"):
        if line.startswith("+++ "):
            path = line[6:] if line.startswith("+++ b/") and line.endswith(".cpp") else None
        found = re.match(r"@@ .* \+(\d+)(?:,(\d+))? @@", line)
        if found and path and found[2] != "0":
            first = int(found[1])
            ranges.setdefault(path, []).append([first, first + int(found[2] or 1) - 1])
    return ranges


def main():
    *options, build = sys.argv[1:]
    tool = shutil.which(f"clang-tidy-{VERSION}") or shutil.which("clang-tidy")
    version = re.search(r"version (\d+)", subprocess.run([tool, "--version"], capture_output=True, text=True).stdout) if tool else None
    if version is None or int(version[1]) != VERSION:
        gate.skip(f"needs clang-tidy {VERSION} (Debian 12: clang-tidy)")
    known = {os.path.relpath(pathlib.Path(e["directory"], e["file"]), gate.root)
             for e in json.loads((pathlib.Path(build) / "compile_commands.json").read_text())}
    if options == ["--all"]:
        wanted = {path: None for path in gate.files(("src/", "cli/", "bench/", "papers/"), (".cpp",)) if path in known}
    else:
        ranges = changed_lines("HEAD") or changed_lines("HEAD~1")
        wanted = dict(sorted((p, r) for p, r in ranges.items() if p in known)[:MOST])

    def faults_of(path):
        lines = [] if wanted[path] is None else ["--line-filter=" + json.dumps([{"name": path, "lines": wanted[path]}])]
        done = subprocess.run([tool, "-p", build, "--quiet", "--checks=" + CHECKS, *lines, path], capture_output=True, text=True,
                              cwd=gate.root)
        return [line.replace(str(gate.root) + "/", "") for line in done.stdout.split("\n")
                if re.search(r": (warning|error): .*\[(bugprone|performance|readability)", line)]

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [fault for found in pool.map(faults_of, wanted) for fault in found]
    gate.end(faults, f"clang-tidy, {len(wanted)} sources")


main()
