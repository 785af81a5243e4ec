#!/usr/bin/env python3
"""Man pages and shell completion: generate.py COMMAND SOURCE DIRECTORY.

COMMAND is the built `pinion`, whose parser has the options; SOURCE the checkout. Writes man1/, man3/ and completion/."""
import pathlib
import sys

import api_pages
import command_pages
import completion
import parser_table

HEADERS = [("pinion", "pinion/pinion.h", "pinion"), ("pinion-firehose", "pinion/firehose.h", "pinion-firehose")]


def write(directory, files):
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.iterdir():
        old.unlink()
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")


def main():
    command, source, target = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    table = parser_table.read(command)
    write(target / "man1", command_pages.pages(table, (source / "docs/commands.md").read_text(encoding="utf-8")))
    calls = {}
    for name, include, library in HEADERS:
        header = (source / "include" / include).read_text(encoding="utf-8")
        calls.update(api_pages.pages(name, include, library, header, table["version"]))
    write(target / "man3", calls)
    write(target / "completion", {"pinion": completion.bash(table), "_pinion": completion.zsh(table),
                                  "pinion.fish": completion.fish(table)})


main()
