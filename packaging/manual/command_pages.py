"""pinion.1 and a page for each command: the options of the parser, and the text of docs/commands.md."""
import re

import roff


def sections(text):
    """docs/commands.md by its headings of the second level; the part before the first is under ''."""
    found, heading = {"": []}, ""
    for line in text.splitlines():
        match = re.match(r"## (.+)", line)
        if match:
            heading = match.group(1).strip()
            found[heading] = []
        elif not line.startswith("# "):
            found[heading].append(line)
    return {heading: "\n".join(lines).strip("\n") for heading, lines in found.items()}


def option_lines(options):
    lines = []
    for option in options:
        value = f" \\fI{roff.escaped(option['type'])}\\fR" if option["type"] else ""
        lines += [".TP", f"\\fB{roff.escaped(option['name'])}\\fR{value}", roff.inline(option["text"]) or "\\&"]
    return lines


def synopsis(command):
    words = [f"\\fBpinion {command['name']}\\fR"]
    if command["options"]:
        words.append("[\\fIoptions\\fR]")
    if command["starts_program"]:
        words.append("\\-\\- \\fICMD\\fR...")
    else:
        words += [f"[\\fI{roff.escaped(argument['name'])}\\fR...]" for argument in command["arguments"]]
    return [" ".join(words)]


EXIT_STATUS = [".TP", "\\fB0\\fR", "success", ".TP", "\\fB1\\fR", "the work failed: one line on standard error", ".TP",
               "\\fB2\\fR", "bad input: one line on standard error, before anything is started or written"]
PROGRAM_STATUS = [".PP", "Else the status is the program's: 128 + n where signal n ended it, 127 where it is missing, 126 where "
                  "the system refuses to execute it."]
ENVIRONMENT = [".TP", "\\fBPINION\\fR", "options, as \\fIname=value\\fR,...; \\fBoff\\fR leaves the program alone altogether",
               ".TP", "\\fBPINION_CONFIG\\fR", "a file of \\fIname=value\\fR lines, which \\fBPINION\\fR overrides"]


def see_also(names, besides):
    return [", ".join(f"\\fB{roff.escaped(name)}\\fR(1)" for name in names if name != besides)]


def command_page(command, text, names, table):
    own = [option for option in command["options"] if not option["of_table"]]
    of_table = [option for option in command["options"] if option["of_table"]]
    options = option_lines(own)
    if of_table:
        options += [".SS Pinion's options", *option_lines(of_table)]
    name = f"pinion-{command['name']}"
    parts = [("NAME", [f"{roff.escaped(name)} \\- {roff.inline(command['text'])}"]), ("SYNOPSIS", synopsis(command)),
             ("DESCRIPTION", roff.from_markdown(text or command["text"])), ("OPTIONS", options),
             ("EXIT STATUS", EXIT_STATUS + (PROGRAM_STATUS if command["name"] in ("run", "softroce") else []))]
    if of_table:
        parts.append(("ENVIRONMENT", ENVIRONMENT))
    parts.append(("SEE ALSO", see_also(names, name)))
    return roff.page(name, 1, table["version"], parts)


def main_page(table, text, names):
    commands = []
    for command in table["commands"]:
        commands += [".TP", f"\\fBpinion\\-{command['name']}\\fR(1)", roff.inline(command["text"])]
    parts = [("NAME", [f"pinion \\- {roff.inline(table['text'])}"]),
             ("SYNOPSIS", ["\\fBpinion\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]"]),
             ("DESCRIPTION", ["Keeps registered (pinned) exactly the memory that the next RDMA transfers of a program need."]),
             ("COMMANDS", commands), ("OPTIONS", roff.from_markdown(text["Options"])), ("ENVIRONMENT", ENVIRONMENT),
             ("EXIT STATUS", EXIT_STATUS), ("SEE ALSO", see_also(names, "pinion"))]
    return roff.page("pinion", 1, table["version"], parts)


def pages(table, markdown):
    """Names of files and their contents."""
    text = sections(markdown)
    names = ["pinion", *(f"pinion-{command['name']}" for command in table["commands"])]
    made = {"pinion.1": main_page(table, text, names)}
    for command in table["commands"]:
        made[f"pinion-{command['name']}.1"] = command_page(command, text.get(command["name"], ""), names, table)
    return made
