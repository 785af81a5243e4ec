#!/usr/bin/env python3
"""state.py BUILD: the process's state exists once. Of the built libraries libpinion alone defines the engine's variables: no other
has a writable variable of the same name. tests/gates/state_exceptions names those that are a library's own, with the reasons."""
import pathlib
import re
import shutil
import subprocess
import sys

import gate

LIBRARIES = ("libpinion-firehose.so", "libpinion-preload.so", "libpinion-heap.so", "libpinion-symbols.so")
# The runtime's and the compiler's own, which each library has because it links libstdc++ into itself.
OTHERS = re.compile(r"^(?!.*\bpinion::)|guard variable for|\.L|typeinfo|vtable|_ZTV")


def variables(library):
    """The names of writable variables (also of thread-local ones) that the library defines."""
    listed = subprocess.run(["nm", "--demangle", "--defined-only", str(library)], capture_output=True, text=True).stdout
    rows = re.findall(r"^[0-9a-f]+ ([bBdDsS]) (.*)$", listed, re.M)
    return {name for _, name in rows if not OTHERS.search(name)}


def main():
    folder = pathlib.Path(sys.argv[1]) / "lib"
    if shutil.which("nm") is None or not (folder / "libpinion.so").exists():
        gate.skip("needs nm and the built libraries")
    excepted = gate.exceptions("state_exceptions")
    own = variables(folder / "libpinion.so")
    faults = [] if len(own) > 20 else ["libpinion.so: its symbols are gone"]
    for name in LIBRARIES:
        if (folder / name).exists():
            twice = sorted(v for v in variables(folder / name) & own if v.replace(" ", "") not in excepted)
            faults += [f"{name}: {variable} is in libpinion.so too" for variable in twice]
    gate.end(faults, f"{len(own)} variables of libpinion.so")


main()
