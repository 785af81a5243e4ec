#!/usr/bin/env python3
"""generate.py GENERATE TABLE DIRECTORY: from the MPI front's table of calls, the stub library's functions and the test program's
calls of them, with arguments that every wrapper leases for: mpi_stub.inc, mpi_calls.inc."""

import importlib.util
import sys
from pathlib import Path

# Arguments by the type of a parameter.
BY_TYPE = {
    "Datatype": "kByte", "const Datatype*": "given.types", "Datatype*": "&given.type", "Comm": "kWorld", "Comm*": "&given.comm",
    "Op": "kSum", "Win": "kWindow", "Win*": "&given.window", "Info": "0", "Errhandler": "0", "File": "kFile",
    "Request*": "&given.request", "Message*": "&given.message", "Session*": "&given.session", "Status*": "&given.status",
    "int*": "&given.number", "char***": "&given.arguments", "Offset": "0",
}
LENGTHS = ("n", "sendcount", "recvcount", "target_count", "result_count", "size")
BUFFERS = {"recvbuf": 1, "result": 1, "compare": 2}


def argument(function, kind, name):
    if kind in ("void*", "const void*"):
        if function.row.name.startswith("Win_allocate"):
            return "&given.base"
        return f"given.buffers[{BUFFERS.get(name, 0)}]"
    if kind in ("const int*", "const Count*", "const Aint*"):
        array = "int" if kind == "const int*" else "long"
        return f"given.{'counts' if 'counts' in name else 'offsets'}_{array}"
    if kind in ("int", "Count", "Aint"):
        several = any(k == "Request*" for k, _ in function.parameters) and function.row.kind == "-"
        return "1" if several or name == "partitions" else "kBytes" if name in LENGTHS else "0"
    return BY_TYPE[kind]


def main():
    generate, table, directory = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("mpi_table", generate)
    mpi = importlib.util.module_from_spec(spec)
    sys.modules["mpi_table"] = mpi
    spec.loader.exec_module(mpi)
    functions = [f for row in mpi.read_table(table) for f in mpi.functions_of(row)]
    stubs, calls, seen = [], [], set()
    for symbol, function in mpi.entries_of(functions):
        if symbol in seen:
            continue
        seen.add(symbol)
        stubs.append(f"STUB({symbol})")
        if any(kind == "..." for kind, _ in function.parameters):
            parameters, arguments = "int, ...", "2, 0"
        else:
            parameters = ", ".join(kind for kind, _ in function.parameters)
            arguments = ", ".join(argument(function, kind, name) for kind, name in function.parameters)
        calls.append(f"CALL({symbol}, ({parameters}), ({arguments}))")
    Path(directory, "mpi_stub.inc").write_text("\n".join(stubs) + "\n")
    Path(directory, "mpi_calls.inc").write_text("\n".join(calls) + "\n")


main()
