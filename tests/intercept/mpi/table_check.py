#!/usr/bin/env python3
"""That src/intercept/mpi/calls.table speaks of every function of an MPI with a buffer, with the parameters that mpi.h has,
and that the test programs it names call it.

    table_check.py GENERATE TABLE MPICC PROGRAMS

MPICC is the compiler wrapper of the MPI, PROGRAMS the directory of its test programs. Says what is wrong, a line each.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

# With a pointer to void that is no buffer of a transfer: attributes, callbacks' states, tool variables.
NO_BUFFERS = re.compile(r"MPIX?_(T_|.*(keyval|_attr|Attr_)|Keyval_|Grequest_|Register_datarep|DUP_FN)")
# MPICH's streams, since 4.1, pass untouched (docs/fabrics.md).
STREAMS = re.compile(r"MPIX_(Stream_\w+|\w+_enqueue(_c)?|Info_set_hex)$")
# Parameters of the calls that end, begin or complete something without a buffer of their own.
LONG = {"MPI_Aint", "MPI_Count", "MPI_Offset", "long", "long long", "ptrdiff_t"}
NULL_FUNCTIONS = re.compile(r"_FN$|_fn$")


def output_of(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def class_of(parameter):
    parameter = re.sub(r"\b(const|restrict)\b", "", parameter).strip()
    if parameter == "...":
        return "..."
    if "*" in parameter or "[" in parameter:
        return "pointer"
    words = parameter.split()
    kind = " ".join(words[:-1]) if len(words) > 1 else words[0]
    if kind in LONG:
        return "long"
    return kind.removeprefix("MPI_").removeprefix("MPIO_")


def prototypes(mpicc):
    """name -> (classes of its parameters, whether it has a buffer)"""
    source = "#include <mpi.h>\n#ifdef OPEN_MPI\n#include <mpi-ext.h>\n#endif\n"
    text = output_of(mpicc, "-E", "-P", "-x", "c", "-", input=source)
    text = re.sub(r"__attribute__\s*\(\(.*?\)\)\s*(?=[;,)\s])", " ", text, flags=re.S)
    found = {}
    for name, parameters in re.findall(r"\bint\s+(MPIX?_\w+)\s*\(([^;{}]*)\)\s*;", text):
        parameters = re.sub(r"\s+", " ", parameters).strip()
        listed = [] if parameters in ("", "void") else split(parameters)
        buffers = any(re.match(r"(const )?void ?\*", p) for p in listed)
        found[name] = ([class_of(p) for p in listed], buffers)
    return found


def split(parameters):
    parts, depth, part = [], 0, ""
    for letter in parameters:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    return parts + [part.strip()]


def called_by(programs):
    """program -> the MPI functions that it refers to"""
    calls = {}
    for path in Path(programs).glob("mpi_*"):
        if path.is_file():
            symbols = output_of("nm", "-D", "--undefined-only", str(path))
            calls[path.name.removeprefix("mpi_").removesuffix("_large")] = (
                calls.get(path.name.removeprefix("mpi_").removesuffix("_large"), set())
                | set(re.findall(r"\bMPIX?_\w+", symbols))
            )
    return calls


def main():
    generate, table, mpicc, programs = sys.argv[1:]
    listed = json.loads(output_of(sys.executable, generate, table, "--json"))
    wrong = 0

    def say(text):
        nonlocal wrong
        wrong += 1
        print(text)

    declared = prototypes(mpicc)
    if len(declared) < 350:
        say(f"only {len(declared)} prototypes of {mpicc} were understood")
    for name, (parameters, buffers) in sorted(declared.items()):
        left_out = NO_BUFFERS.match(name) or STREAMS.match(name) or NULL_FUNCTIONS.search(name)
        if buffers and name not in listed and not left_out:
            say(f"{name} has a buffer and is not in the table")
        ours = listed.get(name, {}).get("parameters")
        if ours is not None and ours != parameters:
            say(f"{name}: the table has ({', '.join(ours)}), mpi.h ({', '.join(parameters)})")

    calls = called_by(programs)
    for name, function in sorted(listed.items()):
        if name in declared and function["tests"] and not any(name in calls.get(t, ()) for t in function["tests"]):
            say(f"{name} is not called by {' '.join(function['tests'])}")
    sys.exit(wrong > 0)


main()
