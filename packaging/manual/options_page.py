"""docs/options.md: every option, from the parser's table. `options_page.py COMMAND >docs/options.md` makes it anew."""
import re
import sys

import parser_table

HEAD = """# Options

Every option of `pinion`, as `pinion help COMMAND` lists them: [commands](commands.md) explains their use.
`packaging/manual/options_page.py build/bin/pinion` makes this page from the command's own parser, and a test compares the two.

Defaults are in brackets.
"""
TABLE = ["| option | value | meaning |", "|---|---|---|"]


def cell(text):
    return text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")


def rows(options):
    lines = list(TABLE)
    for option in options:
        value = option["type"] + (" (may be left out)" if option["type"] and option["value_optional"] else "")
        lines.append(f"| `{option['name']}` | {cell(value)} | {cell(option['text'])} |")
    return lines


def page(table):
    of_table = next(command for command in table["commands"] if command["name"] == "run")["options"]
    lines = [HEAD, "## Pinion's options", "", "For `run` and `compare`, `PINION`, and files of settings. `pinion info options --all` also lists those for `--tune`, which are for\ncomparisons and experts; in `PINION` and files they stand like the others.", ""]
    lines += rows(option for option in of_table if option["of_table"])
    for command in table["commands"]:
        own = [option for option in command["options"] if not option["of_table"] and option["name"] != "--help"]
        if own:
            lines += ["", f"## {command['name']}", "", re.split(r": (pinion |compare )", command["text"])[0] + ".", "", *rows(own)]
    return "\n".join(lines) + "\n"


def main():
    print(page(parser_table.read(sys.argv[1])), end="")


if __name__ == "__main__":
    main()
