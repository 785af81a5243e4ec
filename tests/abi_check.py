#!/usr/bin/env python3
"""What compiled programs rely on is as packaging/abi lists it: abi_check.py BUILD [--update].

  - The SONAMEs of libpinion and libpinion-firehose, and their public symbols with versions.
  - The layout of each public structure: size, and each member's offset; the value of each enumerator.

A line more is an addition, and a structure whose first member is `size` may grow. Any other change breaks programs that were
compiled before: it needs a new SONAME.
--update writes the list. Prints a line for each difference; exit status 1 if there is any; 77 on a processor other than
the list's."""
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent
listed = root / "packaging/abi"
LIBRARIES = ["libpinion.so", "libpinion-firehose.so"]
HEADERS = ["pinion/pinion.h", "pinion/firehose.h"]


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}).stdout


def symbols(library):
    """Those of PINION_PRIVATE belong to the preloads of the same build."""
    soname = re.search(r"Library soname: \[(.*)\]", output("readelf", "-d", library)).group(1)
    yield f"{soname} SONAME"
    for line in output("readelf", "-W", "--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[6] in ("UND", "ABS") or fields[4] not in ("GLOBAL", "WEAK"):
            continue
        if "@PINION_PRIVATE" not in fields[7] and "@@PINION_PRIVATE" not in fields[7]:
            yield f"{soname} {fields[7].replace('@@', '@')}"


def entries(dwarf):
    """(depth, tag, attributes) of readelf's dump."""
    entry = None
    for line in dwarf.splitlines():
        head = re.match(r" <(\w+)><\w+>: Abbrev Number: \d+ \(DW_TAG_(\w+)\)", line)
        value = re.match(r" +<\w+> +DW_AT_(\w+) *: (?:\(.*?\) ?)?(.*)", line)
        if head or not line.strip():
            if entry:
                yield entry
            entry = (int(head.group(1), 16), head.group(2), {}) if head else None
        elif value and entry:
            entry[2][value.group(1)] = value.group(2).split("): ")[-1].strip().strip('"')
    if entry:
        yield entry


def layouts():
    with tempfile.TemporaryDirectory() as directory:
        source, made = pathlib.Path(directory, "abi.c"), pathlib.Path(directory, "abi.o")
        source.write_text("".join(f"#include <{header}>\n" for header in HEADERS))
        subprocess.run(["cc", "-std=c99", "-g", "-gdwarf-4", "-fno-eliminate-unused-debug-types", f"-I{root}/include", "-c", source, "-o", made],
                       check=True)
        dwarf = output("readelf", "--debug-dump=info", "-W", str(made))
    structure = None
    for depth, tag, attributes in entries(dwarf):
        name = attributes.get("name", "")
        if depth == 1:
            structure = None
            if tag == "structure_type" and name.startswith("pinion_") and "byte_size" in attributes:
                structure = name
                yield f"struct {name} {int(attributes['byte_size'], 0)}"
        elif tag == "member" and structure and depth == 2:
            yield f"struct {structure} .{name} {int(attributes.get('data_member_location', '0').split()[0], 0)}"
        elif tag == "enumerator" and name.startswith("PINION_"):
            yield f"enum {name} {int(attributes['const_value'], 0)}"


def main():
    if platform.machine() != "x86_64":
        sys.exit(77)
    lines = sorted(set(layouts()))
    for library in LIBRARIES:
        lines += sorted(symbols(str(pathlib.Path(sys.argv[1], "lib", library))))
    if "--update" in sys.argv:
        listed.write_text("\n".join(lines) + "\n")
        return 0
    known = listed.read_text().splitlines()
    for line in sorted(set(known) - set(lines)):
        print(f"gone or changed: {line}")
    for line in sorted(set(lines) - set(known)):
        print(f"new: {line}")
    if set(known) != set(lines):
        print("packaging/abi is not the libraries': tests/abi_check.py BUILD --update, after thought")
        return 1
    print(f"{len(lines)} lines: as listed")
    return 0


sys.exit(main())
