#!/usr/bin/env python3
"""The examples of pages hold against the build: docs_examples.py BUILD.

Blocks of C and C++ compile without a warning. One that has a main() ends with status 0, firehose's under mpirun where there is one;
blocks of Python do, in one process a page. Prints a line and the output for each that fails; exit status 1 if there is any."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent
build = pathlib.Path(sys.argv[1]).resolve()
PAGES = ("cpp-python.md", "firehose.md", "from-ucx-rcache.md")
COMPILERS = {"c": ("cc", "-std=c11"), "cpp": ("c++", "-std=c++17")}
BLOCK = re.compile(r"^```(c|cpp|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
environment = {name: value for name, value in os.environ.items() if not name.startswith("PINION")}
environment |= {"PATH": f"{build}/bin:{environment['PATH']}", "PYTHONPATH": str(root / "python"), "PYTHONDONTWRITEBYTECODE": "1",
                "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
failed = []


def passes(where, *command):
    made = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if made.returncode != 0:
        failed.append(f"{where}: {pathlib.Path(command[0]).name}: status {made.returncode}\n{made.stdout}{made.stderr}")
    return made.returncode == 0


def launched(program, code):
    if "pinion_firehose_open" not in code:
        return [program]
    mpirun = shutil.which("mpirun")
    return [mpirun, "-n", "2", program] if mpirun else None


def check_compiled(where, language, code):
    source = pathlib.Path(work) / f"example.{language}"
    source.write_text(code)
    whole = "int main(" in code
    target = str(pathlib.Path(work) / ("example" if whole else "example.o"))
    libraries = [f"-L{build}/lib", f"-Wl,-rpath,{build}/lib", *(["-lpinion-firehose"] if "firehose" in code else []), "-lpinion"]
    compiled = passes(where, *COMPILERS[language], "-Wall", "-Wextra", "-Werror", f"-I{root}/include", str(source), "-o", target,
                      *(libraries if whole else ["-c"]))
    command = launched(target, code)
    if compiled and whole and command:
        passes(where, *command)


def main():
    count = 0
    for page in PAGES:
        text, python = (root / "docs" / page).read_text(), ""
        for block in BLOCK.finditer(text):
            where = f"docs/{page}:{text[:block.start()].count(chr(10)) + 1}"
            count += 1
            if block[1] == "python":
                python += block[2]
            else:
                check_compiled(where, block[1], block[2])
        if python:
            passes(f"docs/{page}: Python", sys.executable, "-c", python)
    if count < len(PAGES):
        failed.append(f"only {count} examples were found")
    print("\n".join(failed) or f"{count} examples: no fault")
    return 1 if failed else 0


with tempfile.TemporaryDirectory() as work:
    sys.exit(main())
