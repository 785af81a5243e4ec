#!/usr/bin/env python3
"""Comments are sentences: fewer than one in a hundred opens with a word that leaves subject or verb out ("Of them, those that
...", "The same where ...")."""
import re

import gate

MOST = 0.01
OPENING = re.compile(r"(Of|The same|That|Those|Where|So|As|By|Into|From|Such|Beside|Beyond|Among|Until|Since|How|When|What|Who|"
                     r"In which|To be|Not to|Good until|Set by|With its|A .* that is none)\b")
SLASHES = re.compile(r"(?:^|\s)//[/!<]*\s?(.*)")
HASH = re.compile(r"(?:^|\s)#(?!!)\s?(.*)")


def openings(path):
    """Line and text of each comment's first line, from three words on."""
    mark, previous = (SLASHES if path.endswith((".h", ".hpp", ".c", ".cpp")) else HASH), -1
    for number, line in enumerate((gate.root / path).read_text(errors="replace").split("\n"), 1):
        found = mark.search(line)
        if not found:
            continue
        if number != previous + 1 and len(found[1].split()) >= 3:
            yield number, found[1].strip()
        previous = number


def main():
    paths = gate.files(("src/", "include/", "cli/", "bench/", "papers/", "tests/", "examples/", "cmake/", "scripts/", "python/"),
                       (".h", ".hpp", ".c", ".cpp", ".py", ".sh", ".cmake", "CMakeLists.txt"))
    comments, faults = 0, []
    for path in paths:
        for number, text in openings(path):
            comments += 1
            if OPENING.match(text):
                faults.append(f"{path}:{number}: begins without subject or verb: {text[:80]}")
    share = f"{comments} comments, {100 * len(faults) / max(comments, 1):.2f} % fragments, at most {100 * MOST:g}"
    gate.end(faults if len(faults) >= MOST * comments else [], share)


main()
