#!/usr/bin/env python3
"""thread_safety.py BUILD: the fields that a lock guards are used under it. Clang checks each source that includes base/mutex.h, itself,
by the header of its name or by a header without a source, with the flags of BUILD/compile_commands.json. It compiles nothing."""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import gate

ANNOTATED = re.compile(r'#include "base/(?:mutex|thread_annotations|spin_lock)\.h"')
KEPT = ("-I", "-D", "-std=", "-isystem")


INCLUDED = re.compile(r'#include "([^"]+)"')


def text_of(path):
    return path.read_text(errors="replace") if path.exists() else ""


def is_annotated(path):
    """Whether the file, the header of its name, or a header without a source that it includes has annotations."""
    texts = [text_of(path), text_of(path.with_suffix(".h"))]
    for folder in ("src", "cli"):
        for name in INCLUDED.findall(texts[0]):
            header = gate.root / folder / name
            if not header.with_suffix(".cpp").exists():
                texts.append(text_of(header))
    return any(ANNOTATED.search(text) for text in texts)


def flags(command):
    words, kept = iter(shlex.split(command)), []
    for word in words:
        if word == "-isystem":
            kept += [word, next(words)]
        elif word.startswith(KEPT):
            kept.append(word)
    return kept


def main():
    clang = shutil.which("clang++") or shutil.which("clang++-14")
    if clang is None:
        gate.skip("needs clang++ (Debian: clang)")
    entries = {}
    for entry in json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["directory"], entry["file"])
        if path.suffix == ".cpp" and path.is_relative_to(gate.root) and not path.is_relative_to(gate.root / "tests"):
            entries.setdefault(path, entry)
    checked = sorted(path for path in entries if is_annotated(path))
    flags_of = {path.parent: entry for path, entry in sorted(entries.items())}
    for name in gate.files(("src/", "cli/", "bench/", "papers/"), (".h",)):
        header = gate.root / name
        if header.with_suffix(".cpp") not in entries and header.parent in flags_of and is_annotated(header):
            entries[header] = flags_of[header.parent]
            checked.append(header)

    def faults_of(path):
        entry = entries[path]
        done = subprocess.run([clang, "-fsyntax-only", "-w", "-Wthread-safety", "-Werror=thread-safety",
                               *flags(entry["command"]), "-x", "c++", str(path)], cwd=entry["directory"], capture_output=True, text=True)
        return [line.replace(str(gate.root) + "/", "") for line in done.stderr.split("\n") if ": error: " in line]

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = sorted({fault for found in pool.map(faults_of, checked) for fault in found})
    gate.end(faults, f"locks of {len(checked)} sources")


main()
