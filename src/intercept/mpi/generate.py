#!/usr/bin/env python3
"""Makes of calls.table what the build and the documentation need.

    generate.py TABLE DIRECTORY   entry_list.inc, entry_names.inc and wrappers.inc, for the build
    generate.py TABLE --docs      the table of docs/mpi-functions.md, on standard output
    generate.py TABLE --json      every function: parameters by class, how it is covered, its tests (for tests)
"""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

WIDE = {  # types that differ between MPI_X and MPI_X_c
    "count": ("int", "Count"),
    "counts": ("const int*", "const Count*"),
    "displs": ("const int*", "const Aint*"),
    "disp": ("int", "Aint"),
}
KINDS_OF_POINT_TO_POINT = ("send", "receive")  # distinguished by form in the log
HOW = {
    "blocking": "leased until it returns",
    "nonblocking": "leased until the request completes",
    "persistent": "leased from each start to its completion",
    "split": "leased from begin to end",
    "epoch": "leased until complete at the origin: flush, unlock, complete, fence",
    "request": "leased until the request completes",
}


@dataclass
class Row:
    name: str
    forms: list
    kind: str
    parameters: list  # (type, name)
    buffers: str
    tests: str


@dataclass
class Function:
    """One function of MPI: MPI_X, and PMPI_X beside it."""

    name: str  # with MPI_
    form: str
    row: Row
    large: bool
    parameters: list


def read_table(path):
    rows = []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        columns = [column.strip() for column in line.split(" | ")]
        if len(columns) != 6:
            sys.exit(f"{path}:{number}: {len(columns)} columns instead of 6")
        names, forms, kind, parameters, buffers, tests = columns
        for name in names.split():
            if forms == "none":
                rows.append(Row(name, ["none", *parameters.split()], kind, [], buffers, tests))
            else:
                rows.append(Row(name, forms.split(), kind, parse_parameters(parameters), buffers, tests))
    return rows


def parse_parameters(text):
    parameters = []
    if text == "void":
        return parameters
    for parameter in filter(None, (p.strip() for p in text.split(","))):
        kind, _, name = parameter.rpartition(" ")
        parameters.append((kind, name) if kind else ("...", ""))
    return parameters


def nonblocking_name(name):
    if name.startswith("File_"):
        return "File_i" + name[len("File_") :]
    return "I" + name[0].lower() + name[1:]


def functions_of(row):
    """In all forms; each as large as the row allows."""
    request = [("Request*", "request")]
    plain = [p for p in row.parameters if p != ("Status*", "status")]
    made = []
    for form in row.forms:
        if form == "blocking":
            made.append(("MPI_" + row.name, form, row.parameters))
        elif form == "nonblocking":
            made.append(("MPI_" + nonblocking_name(row.name), form, plain + request))
        elif form == "persistent":
            made.append((f"MPI_{row.name}_init", "persistent", plain + request))
        elif form == "persistent-info":
            parameters = plain + [("Info", "info")] + request
            made.append((f"MPI_{row.name}_init", "persistent", parameters))
            made.append((f"MPIX_{row.name}_init", "persistent", parameters))
        elif form == "init":
            made.append(("MPI_" + row.name, "persistent", row.parameters))
        elif form == "split":
            made.append((f"MPI_{row.name}_begin", "split", plain))
            buffer = next(p for p in plain if p[1] == "buf")
            made.append((f"MPI_{row.name}_end", "end", [plain[0], buffer, ("Status*", "status")]))
        elif form == "epoch":
            made.append(("MPI_" + row.name, form, row.parameters))
        elif form == "request":
            made.append((f"MPI_R{row.name[0].lower()}{row.name[1:]}", form, row.parameters + request))
        elif form in ("own", "none"):
            made.append(("MPI_" + row.name, form, row.parameters))
        elif form != "large":
            sys.exit(f"calls.table: {row.name}: no form '{form}'")
    if row.forms[0] == "none":
        base = row.name
        made = [("MPI_" + base, "none", [])] if "blocking" in row.forms else []
        if "nonblocking" in row.forms:
            made.append(("MPI_" + nonblocking_name(base), "none", []))
        if "persistent" in row.forms:
            made.append((f"MPI_{base}_init", "none", []))
    functions = []
    for name, form, parameters in made:
        functions.append(Function(name, form, row, False, widen(parameters, 0)))
        if "large" in row.forms and form != "end" and not name.startswith("MPIX_"):
            functions.append(Function(name + "_c", form, row, True, widen(parameters, 1)))
    return functions


def widen(parameters, which):
    return [(WIDE[kind][which] if kind in WIDE else kind, name) for kind, name in parameters]


# ---- for the build ----


def template_of(function):
    """The name of the wrapper template of a function, and what follows its entry among the arguments."""
    if function.form == "own":
        disp = [kind for kind, name in function.row.parameters if kind == "disp"]
        name = function.name.removeprefix("MPI_").removesuffix("_c" if function.large else "")
        return name, ", " + WIDE["disp"][function.large] if disp else ""
    return re.sub("^MPIX?_", "", function.name), ""


def smallness(function):
    """What says of a call, before anything is set up for it, that none of its buffers is large; none where that takes
    more than its own arguments, or where a small call has to be noted as well."""
    parts = re.findall(r"\buse\.(\w+)\(\w+, ([^,]+), (\w+)", function.row.buffers)
    counts = {name for kind, name in function.row.parameters if kind == "count"} | {"1"}
    if function.form in ("persistent", "split", "end") or function.parameters[0][1] == "file":
        return None
    if not parts or any(name.endswith(("_blocks", "_typed")) or n not in counts for name, n, _ in parts):
        return None
    return " && ".join(dict.fromkeys(f"is_small({n}, {kind})" for _, n, kind in parts))


def wrapper(function):
    row = function.row
    parameters = ", ".join(f"{kind} {name}" for kind, name in function.parameters)
    types = ", ".join(kind for kind, _ in function.parameters)
    names = [name for _, name in function.parameters]
    kind = row.kind
    if kind in KINDS_OF_POINT_TO_POINT and function.form in ("nonblocking", "persistent"):
        kind += "_" + function.form
    is_file = names and names[0] == "file"
    receives = "use.receives" in row.buffers
    name = template_of(function)[0]
    next_one = f"next_of<entry, int({types})>()"
    # Small calls go on at once. All else is a function of its own, so that a small call needs no frame;
    # it is jumped to, so that its caller is the program too.
    small = smallness(function)
    looked_at = f"{name}_looked_at" if small else name
    lines = ["template <int entry>", f"{'[[gnu::noinline]] ' if small else ''}int {looked_at}({parameters}) {{"]
    lines.append(f"  const auto next = {next_one};")
    call = f"next({', '.join(names)})"

    if function.form == "end":
        lines += [
            f"  const int code = {call};",
            "  Nesting nesting;",
            "  if (!Holdings::files().empty() && nesting.enter())",
            "    Holdings::files().release(nesting.thread(), nesting.lease_path(), key_of(file));",
            "  return code;",
            "}",
        ]
        return "\n".join(lines)

    lines.append(f"  Buffers use(EntryFrame::here(), CallKind::{kind});")
    if function.form == "persistent":
        lines += ["  Remembered remembered;", "  use.note_down(remembered);"]
    lines.append(f"  if (!use.watched()) return {call};")
    if is_file:
        lines.append("  use.alone();")
    elif "win" in names:
        lines.append("  use.toward(win, target);")
    elif "comm" in names:
        lines.append(f"  use.among(comm{', root' if 'root' in names else ''});")
    lines.append("  const auto name_buffers = [&] {")
    if re.search(r"\bcomm\b", row.buffers):
        lines.append("    if (!use.may_ask(comm)) return;")
    if row.buffers.endswith("}"):
        lines.append("    " + row.buffers)
    else:
        lines += [f"    {statement};" for statement in row.buffers.split("; ")]
    lines += ["  };", "  use.before_call(name_buffers);"]
    if function.form == "blocking" and receives:
        call = f"next({', '.join('told' if n == 'status' else n for n in names)})"
        lines += [
            "  Status* const told = use.status(status);",
            f"  const int code = {call};",
            "  use.after_call(code, name_buffers);",
            "  use.received(code, told);",
            "  return code;",
        ]
    elif function.form == "blocking":
        lines += [f"  const int code = {call};", "  use.after_call(code, name_buffers);", "  return code;"]
    else:
        ending = {
            "nonblocking": "use.hand_over_to(*request)",
            "request": "use.hand_over_to(*request)",
            "persistent": "Requests::instance().remember(key_of(*request), std::move(remembered))",
            "epoch": "use.hand_over_to(Holdings::origins(), key_of(win), static_cast<std::uint64_t>(target))",
            "split": "use.hand_over_to(Holdings::files(), key_of(file), 0)",
        }[function.form]
        condition = "code == kSuccess"
        if function.form == "persistent":
            condition += " && !remembered.uses.empty()"
        lines += [
            f"  const int code = {call};",
            "  use.after_call(code, name_buffers);",
            f"  if ({condition}) {ending};",
            "  return code;",
        ]
    lines.append("}")
    if small:
        lines += [
            "",
            "template <int entry>",
            f"int {name}({parameters}) {{",
            f"  if ({small}) [[likely]] return {next_one}({', '.join(names)});",
            f"  return {looked_at}<entry>({', '.join(names)});",
            "}",
        ]
    return "\n".join(lines)


def entries_of(functions):
    """(symbol, function) in the order of all tables."""
    return [(prefix + f.name, f) for f in functions if f.form != "none" for prefix in ("", "P")]


def write_build(functions, directory):
    entries = entries_of(functions)
    lines = [f"  entry {symbol}, {i}" for i, (symbol, _) in enumerate(entries)]
    (directory / "entry_list.inc").write_text(
        f"// Generated from calls.table.\n#define PINION_MPI_ENTRIES {len(entries)}\n" + "\n".join(lines) + "\n"
    )

    names = "\n".join(f'    "{symbol}",' for symbol, _ in entries)
    (directory / "entry_names.inc").write_text(
        f"// Generated from calls.table.\nconst char* const kEntryNames[] = {{\n{names}\n}};\n"
    )
    (directory / "entry_count.inc").write_text(f"// Generated from calls.table.\n{len(entries)}\n")

    bodies, seen = [], set()
    for function in functions:
        template = template_of(function)[0]
        if function.form in ("own", "none") or template in seen:
            continue
        seen.add(template)
        bodies.append(wrapper(function))
    table = []
    for i, (_, function) in enumerate(entries):
        template, more = template_of(function)
        table.append(f"    reinterpret_cast<void*>(&{template}<{i}{more}>),")
    (directory / "wrappers.inc").write_text(
        "// Generated from calls.table.\n\nnamespace pinion::mpi::PINION_MPI_ABI {\n\nnamespace {\n\n"
        + "\n\n".join(bodies)
        + "\n\nvoid* const kWrappers[] = {\n"
        + "\n".join(table)
        + "\n};\n\n}  // namespace\n\nextern const Front kFront = {kWrappers, attach};\n\n"
        + "}  // namespace pinion::mpi::PINION_MPI_ABI\n"
    )


# ---- for documentation and tests ----


def carries_buffer(function):
    return function.row.buffers != "-"


def how(function):
    if function.form == "none":
        return "not intercepted: " + function.row.buffers
    if function.form == "own":
        return "leased: " + function.row.buffers if "ends" not in function.row.buffers else function.row.buffers
    return HOW[{"end": "split"}.get(function.form, function.form)]


def print_docs(functions):
    print("| function | also | how | tested in |")
    print("|---|---|---|---|")
    known = {f.name for f in functions}
    for f in functions:
        if not carries_buffer(f) or f.large or f.name.startswith("MPIX_"):
            continue
        also = [f"`_c`"] if f.name + "_c" in known else []
        also += ["`MPIX_`"] if f.name.replace("MPI_", "MPIX_") in known else []
        tests = " ".join(f"`{t}`" for t in f.row.tests.split() if t != "-")
        print(f"| `{f.name}` | {' '.join(also)} | {how(f)} | {tests} |")


def class_of(kind):
    """As a calling convention sees a parameter."""
    if "*" in kind:
        return "pointer"
    return {"int": "int", "Aint": "long", "Count": "long", "Offset": "long", "...": "..."}.get(kind, kind)


def print_json(functions):
    json.dump(
        {
            f.name: {
                "parameters": None if f.form == "none" else [class_of(kind) for kind, _ in f.parameters],
                "covered": f.form != "none",
                "tests": [t for t in f.row.tests.split() if t != "-"],
            }
            for f in functions
        },
        sys.stdout,
        indent=1,
    )


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    functions = [f for row in read_table(sys.argv[1]) for f in functions_of(row)]
    if sys.argv[2] == "--docs":
        print_docs(functions)
    elif sys.argv[2] == "--json":
        print_json(functions)
    else:
        write_build(functions, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
