#!/usr/bin/env python3
"""Options agree wherever users meet them: manual_check.py BUILD. The parser of BUILD's `pinion` is the table; compared with it are

  - the man page of each command, which groff formats without a warning;
  - completion for bash, and for fish where it is installed, asked as a user's key does; zsh's, which zsh reads without an error;
  - docs/commands.md: a section for each command that takes arguments, which names the command's own options;
  - README.md and docs/: each option behind `pinion COMMAND` exists, and each everyday option of the table is named;
  - docs/options.md and docs/api.md: they are what packaging/manual/options_page.py and api_page.py make;
  - include/: each public call has a man page.

Prints a line for each fault; exit status 1 if there is any."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
build = pathlib.Path(sys.argv[1]).resolve()
faults = []


def expect(holds, fault):
    if not holds:
        faults.append(fault)


def output(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def formatted(page):
    """As groff prints it, in one line a paragraph and without fonts."""
    made = output("groff", "-k", "-man", "-Tutf8", "-ww", "-rLL=10000n", "-P-c", "-P-b", "-P-u", str(page))
    expect(made.returncode == 0 and not made.stderr, f"{page.name}: groff: {made.stderr.strip()}")
    return made.stdout.replace("\u2010", "-").replace("\u2212", "-")


def names_option(text, option):
    return re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text) is not None


def check_pages(table):
    if not shutil.which("groff"):
        return
    for command in table["commands"]:
        text = formatted(build / "manual/man1" / f"pinion-{command['name']}.1")
        options = text[text.index("\nOPTIONS\n"):]
        for option in command["options"]:
            expect(names_option(options, option["name"]), f"pinion-{command['name']}.1 lacks {option['name']}")
    text = formatted(build / "manual/man1/pinion.1")
    for command in table["commands"]:
        expect(f"pinion-{command['name']}(1)" in text, f"pinion.1 lacks {command['name']}")
    for name in ("pinion", "pinion-firehose"):
        text = formatted(build / "manual/man3" / f"{name}.3")
        header = (root / "include/pinion" / f"{name.removeprefix('pinion-')}.h").read_text()
        calls = set(re.findall(r"^\w[\w* ]*?(pinion_\w+)\(", header, re.MULTILINE))
        expect(len(calls) > 15, f"{name}: the header was not understood")
        for call in calls:
            expect(f"{call}(" in text, f"{name}.3 lacks {call}")
            expect((build / "manual/man3" / f"{call}.3").exists(), f"there is no {call}.3")


def completed_by_bash(words):
    script = (f"source '{build}/manual/completion/pinion'; COMP_WORDS=({' '.join(words)} ''); COMP_WORDS[-1]=$1; "
              "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _pinion; printf '%s\\n' \"${COMPREPLY[@]}\"")
    return lambda typed: set(output("bash", "-c", script, "-", typed).stdout.split())


def completed_by_fish(words):
    script = f"source '{build}/manual/completion/pinion.fish'; complete -C \"{' '.join(words)} $TYPED\""
    return lambda typed: {line.split("\t")[0] for line in
                          output("fish", "-N", "-c", script, env={**os.environ, "TYPED": typed}).stdout.splitlines()}


def check_completion(table):
    shells = {"bash": completed_by_bash}
    if shutil.which("fish"):
        shells["fish"] = completed_by_fish
    for shell, completed in shells.items():
        names = {command["name"] for command in table["commands"]}
        found = completed(["pinion"])("")
        expect(names <= found, f"{shell}: `pinion ` lacks {sorted(names - found)}")
        for command in table["commands"]:
            there = {option["name"] for option in command["options"]}
            found = {word for word in completed(["pinion", command["name"]])("--") if word.startswith("--")}
            expect(found == there, f"{shell}: `pinion {command['name']} --`: {sorted(found ^ there)}")
        run = next(command for command in table["commands"] if command["name"] == "run")
        for option in run["options"]:
            if option["choices"] and option["name"] == "--retention":
                found = completed(["pinion", "run", option["name"]])("")
                expect(found == set(option["choices"]), f"{shell}: {option['name']}: {sorted(found)}")
        # A program's own words begin at its name, with `--` or without.
        for words in (["run"], ["run", "--limit", "2G"], ["run", "--limit=2G", "--hugepages"], ["run", "--"]):
            found = completed(["pinion", *words, "ls"])("/usr/includ")
            expect(any("/usr/include" in word for word in found), f"{shell}: {' '.join(words)} ls /usr/includ: {found}")
            found = completed(["pinion", *words, "ls"])("--lim")
            expect("--limit" not in found or shell == "fish", f"{shell}: {' '.join(words)} ls --lim: {found}")
    if shutil.which("zsh"):
        script = build / "manual/completion/_pinion"
        made = output("zsh", "-n", str(script))
        expect(made.returncode == 0, f"zsh: {made.stderr}")


def sections(text):
    found, heading = {}, ""
    for line in text.splitlines():
        match = re.match(r"## (.+)", line)
        heading = match.group(1).strip() if match else heading
        found[heading] = found.get(heading, "") + line + "\n"
    return found


def check_documents(table):
    text = sections((root / "docs/commands.md").read_text())
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    every = "".join(page.read_text() for page in pages)
    options = {command["name"]: {option["name"] for option in command["options"]} for command in table["commands"]}
    everyday = {option["name"] for command in table["commands"] for option in command["options"]
                if option["of_table"]}
    for command in table["commands"]:
        name = command["name"]
        own = [option for option in command["options"] if not option["of_table"] and option["name"] != "--help"]
        expect(name in text or not own and not command["arguments"], f"docs/commands.md has no section for {name}")
        for option in own:
            expect(names_option(text.get(name, ""), option["name"]), f"docs/commands.md: {name} lacks {option['name']}")
    for option in sorted(everyday):
        expect(names_option(every, option) or f"`{option[2:]}`" in every, f"no document names {option}")
    # A checkout's own, whose executable reads them.
    options["bench"] = set(re.findall(r"(--[a-z][\w-]*)", output(build / "bin/pinion", "bench", "--help").stdout))
    expect("--rounds" in options["bench"], "pinion bench --help names no --rounds")
    for page in pages:
        for n, line in enumerate(page.read_text().splitlines(), 1):
            for name, rest in re.findall(r"\bpinion ([a-z]+) ([^`|#]*)", line):
                for option in re.findall(r"(?<!\S)(--[a-z][\w-]*)", f" {rest}".split(" -- ")[0]):
                    expect(option in options.get(name, {option}), f"{page.name}:{n}: pinion {name} has no {option}")


def check_options_page(table):
    import options_page
    expect((root / "docs/options.md").read_text() == options_page.page(table),
           "docs/options.md differs from the parser: packaging/manual/options_page.py build/bin/pinion >docs/options.md")


def check_api_page():
    import api_page
    expect((root / "docs/api.md").read_text() == api_page.page(root / "include"),
           "docs/api.md differs from the headers: packaging/manual/api_page.py >docs/api.md")


def main():
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PINION")}
    sys.path.insert(0, str(root / "packaging/manual"))
    sys.dont_write_bytecode = True
    import parser_table
    table = parser_table.read(str(build / "bin/pinion"), env=environment)
    expect(len(table["commands"]) >= 8, "the parser's table lacks commands")
    check_pages(table)
    check_completion(table)
    check_documents(table)
    check_options_page(table)
    check_api_page()
    print("\n".join(faults) or f"{sum(len(command['options']) for command in table['commands'])} options: no fault")
    return 1 if faults else 0


sys.exit(main())
