"""docs/api.md: declarations and comments of the public C headers. `api_page.py >docs/api.md` makes it anew."""
import pathlib
import re
import sys

import api_pages

HEAD = """# The C API

Declarations and comments of `pinion/pinion.h` and `pinion/firehose.h`; `packaging/manual/api_page.py` makes this page, and a test compares
the two. How to use them: [from UCX's rcache to libpinion](from-ucx-rcache.md), [puts and gets](firehose.md), [C++ and Python](cpp-python.md).

Build against it by CMake (`find_package(pinion)`, `pinion::pinion`, `pinion::pinion-firehose`) or pkg-config (`pinion`, `pinion-firehose`).
"""


def words(text):
    """A comment as Markdown: names of C are code."""
    text = re.sub(r"`[^`]+`|\bpinion_\w+(?:\(\))?|\b(?:PINION_[A-Z]\w+|E[A-Z0-9]{3,}|NULL)\b",
                  lambda match: match[0] if match[0][0] == "`" else f"`{match[0]}`", text)
    return re.sub(r"\n[ \t]+(- )?", lambda match: "\n" + (match[1] or "  "), text)


def heading(code):
    """Of a declaration: the call, or the type, that readers look for."""
    found = re.search(r"^\w[\w* ]*?(pinion_\w+)\(|^(?:typedef )?((?:struct|enum) \w+)(?: \{)|^typedef .*?(pinion_\w+)[;)]", "\n".join(code),
                      re.MULTILINE)
    return [f"#### {found[1] or found[2] or found[3]}"] if found else []


def sections(header):
    """The page's part of one header."""
    top = re.match(r"/\*.*?\*/", header, re.DOTALL)
    out, text, code = [words(api_pages.comment_text(top.group(0).splitlines()))], "", []

    def flush():
        nonlocal text, code
        if code:
            out.extend([*heading(code), "```c\n" + "\n".join(code) + "\n```", *([words(text)] if text else [])])
            text, code = "", []

    for kind, lines in api_pages.pieces(header[top.end():]):
        title = re.match(r"/\* -+ (.*) -+ \*/", lines[0]) if kind == "comment" else None
        if kind != "declaration":
            flush()
        if title:
            out.append(f"### {title[1]}")
        elif kind == "comment" and "clang-format" not in lines[0]:
            if text:
                out.append(words(text))
            text = api_pages.comment_text(lines)
        elif kind == "declaration" and "PINION_CHECKED" not in lines[0]:
            code += lines
    flush()
    return "\n\n".join(out)


def page(include):
    """`include`: the directory of the headers."""
    parts = [f"## {name}\n\n{sections((include / 'pinion' / f'{name}.h').read_text())}\n" for name in ("pinion", "firehose")]
    return HEAD + "\n" + "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page(pathlib.Path(__file__).resolve().parents[2] / "include"))
