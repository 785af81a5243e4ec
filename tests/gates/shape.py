#!/usr/bin/env python3
"""The limits of shape: a product file has at most 500 lines, a function 60, a class 40 member functions and 20 fields; no test
lies in tests/ itself, and a test file has at most 1,000 lines. tests/gates/shape_exceptions names the others, with their reasons."""
import collections
import json
import re
import shutil
import subprocess

import gate

FILE, FUNCTION, FUNCTIONS, FIELDS, TEST_FILE = 500, 60, 40, 20, 1000
FOLDERS = ("src/", "cli/", "bench/", "papers/", "include/")


def main():
    if shutil.which("ctags") is None or "Universal Ctags" not in subprocess.run(["ctags", "--version"], capture_output=True,
                                                                             text=True).stdout:
        gate.skip("needs Universal Ctags (Debian: universal-ctags)")
    excepted, met, faults = gate.exceptions("shape_exceptions"), set(), []

    def limit(name, count, most, what):
        if count > most and name in excepted:
            met.add(name)
        elif count > most:
            faults.append(f"{name}: {count} {what}; at most {most}")

    sources = gate.files(FOLDERS, (".h", ".hpp", ".c", ".cpp"))
    for path in sources:
        limit(path, (gate.root / path).read_text(errors="replace").count("\n"), FILE, "lines")
    tests = gate.files(("tests/",), (".h", ".cpp", ".c"))
    for path in tests:
        limit(path, (gate.root / path).read_text(errors="replace").count("\n"), TEST_FILE, "lines")
        if re.fullmatch(r"tests/[^/]+", path):
            faults.append(f"{path}: tests are in the folder of their room")
    tags = subprocess.run(["ctags", "--output-format=json", "--fields=+neKZ", "--kinds-C++=+pf", "-f", "-", "-L", "-"],
                          input="\n".join(sources), capture_output=True, text=True, cwd=gate.root).stdout
    functions, fields = collections.Counter(), collections.Counter()
    for line in tags.split("\n"):
        if not line.startswith("{"):
            continue
        tag = json.loads(line)
        if tag["_type"] != "tag":
            continue
        if tag["kind"] == "function" and "end" in tag:
            limit(f"{tag['path']}:{tag['name']}", tag["end"] - tag["line"] + 1, FUNCTION, "lines in a function")
        if tag["path"].endswith((".h", ".hpp")) and tag.get("scopeKind") in ("class", "struct"):
            functions[tag["scope"]] += tag["kind"] in ("prototype", "function")
            fields[tag["scope"]] += tag["kind"] == "member"
    for name, count in functions.items():
        limit(name, count, FUNCTIONS, "member functions")
    for name, count in fields.items():
        limit(name, count, FIELDS, "fields")
    faults += [f"tests/gates/shape_exceptions: {name} is within the limits" for name in sorted(excepted - met)]
    gate.end(faults, f"shape of {len(sources)} product files and {len(tests)} of tests")


main()
