"""A page for each public C header, from its comments and declarations; each call's own name leads to it."""
import re

import roff


def comment_text(lines):
    """A comment's paragraphs without its stars."""
    text = "\n".join(re.sub(r"^\s*(/\*+|\*/|\*)?\s?", "", re.sub(r"\s*\*/\s*$", "", line)) for line in lines)
    return text.strip()


def paragraphs(text):
    lines = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*- )", text):
        words = " ".join(paragraph.split())
        item = words.startswith("- ")
        lines += [".IP \\(bu 4" if item else ".PP", roff.inline(words[2:] if item else words)]
    return lines


def pieces(header):
    """(kind, lines) in order: a comment, or a declaration; the preprocessor's lines but values are left out."""
    lines, depth = iter(header.splitlines()), 0
    for line in lines:
        if line.startswith("/*"):
            block = [line]
            while "*/" not in block[-1]:
                block.append(next(lines))
            yield "comment", block
        elif re.match(r"#define PINION_\w+ \S", line):
            yield "declaration", [line]
        elif line.startswith("#"):
            while line.endswith("\\"):
                line = next(lines)
        elif not line.strip() or line.startswith('extern "C"') or line == "}":
            yield "blank", []
        else:
            block, depth = [], 0
            while True:
                block.append(line)
                code = re.sub(r"/\*.*?(\*/|$)", "", line)
                depth += code.count("{") - code.count("}")
                if depth == 0 and code.rstrip().endswith(";"):
                    break
                line = next(lines)
            yield "declaration", [re.sub(r" PINION_CHECKED", "", part) for part in block]


def body(header):
    """(heading, lines) of each section, and the names of the calls."""
    parts, calls, text, code = [["", []]], [], "", []

    def flush():
        nonlocal text, code
        if code:
            parts[-1][1].extend([".PP", ".EX", *(roff.escaped(line) for line in code), ".EE"])
            if text:
                parts[-1][1].extend([".RS 4", *paragraphs(text), ".RE"])
            text, code = "", []

    for kind, lines in pieces(header):
        if kind == "comment":
            flush()
            title = re.match(r"/\* -+ (.*) -+ \*/", lines[0])
            if title:
                parts.append([title.group(1).upper(), []])
            elif "clang-format" not in lines[0]:
                parts[-1][1].extend(paragraphs(text) if text else [])
                text = comment_text(lines)
        elif kind == "blank":
            flush()
        else:
            calls += re.findall(r"^\w[\w* ]*?(pinion_\w+)\(", "\n".join(lines), re.MULTILINE)
            code += lines
    flush()
    return parts[1:], calls


def pages(name, include, library, header, version):
    top = re.match(r"/\*(.*?)\*/", header, re.DOTALL)
    text = comment_text(top.group(0).splitlines())
    summary = " ".join(text.split("\n\n")[0].split()).split(": ", 1)[1].split(". ")[0].rstrip(".")
    sections, calls = body(header[top.end():])
    parts = [("NAME", [f"{roff.escaped(name)} \\- {roff.escaped(summary)}"]),
             ("SYNOPSIS", [".EX", f"#include <{include}>", ".EE", ".PP", f"Link with \\fI\\-l{roff.escaped(library)}\\fR."]),
             ("DESCRIPTION", paragraphs(text)), *((heading, lines) for heading, lines in sections if lines)]
    made = {f"{name}.3": roff.page(name, 3, version, parts)}
    made.update({f"{call}.3": f".so man3/{name}.3\n" for call in calls})
    return made
