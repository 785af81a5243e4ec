#!/usr/bin/env python3
"""The documents hold when checked: docs_check.py [ROOT]. Of installed documents, links alone are checked.

  - Relative links and their anchors resolve.
  - Paths of the repository in backticks exist; so do documents that sources cite.
  - docs/architecture.md has at most 1,500 words. A row of its tables that names a function names the file that has it. Its table
    of rooms is the sources' includes.
  - docs/internals/ has at most 13 pages, architecture.md being the fourteenth, of at most 1,500 words each; 2,500 where a page is
    evidence, tests or faults; tables that scripts/recompute-docs or scripts/ablation prints do not count. paper-figures.md may have any.
  - docs/ has at most 22 pages for users, of at most 1,500 words beside code. References may have any: those that are made (options, C
    API, MPI functions), and commands.md, of which man pages are made.

Prints a line for each fault; exit status 1 if there is any."""
import pathlib
import re
import shutil
import subprocess
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
faults = []

TOP = "src|tests|cli|bench|papers|include|cmake|examples|softroce|scripts|docs|packaging|python"
SOURCES = {".h", ".hpp", ".c", ".cpp", ".S", ".py", ".sh", ".bash", ".cmake", ".table"}
MOST_WORDS, MOST_WORDS_OF_EVIDENCE, MOST_INTERNALS, MOST_USERS = 1500, 2500, 14, 22
REFERENCES = {"api.md", "commands.md", "mpi-functions.md", "options.md", "paper-figures.md"}
EVIDENCE = ("evidence-", "faults", "testing")


def fault(path, line, text):
    faults.append(f"{path.relative_to(root)}:{line}: {text}")


def without_code(text):
    """The same lines; those of fenced and indented code are empty."""
    fenced, lines = False, []
    for line in text.split("\n"):
        if line.startswith("```"):
            fenced = not fenced
            line = ""
        lines.append("" if fenced or line.startswith("    ") else line)
    return lines


def anchors(path):
    """As GitHub makes them of headings."""
    found = set()
    for line in without_code(path.read_text()):
        heading = re.match(r"#+ +(.*)", line)
        if heading:
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).replace("`", "")
            slug, count = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"), 1
            name = slug
            while name in found:
                name, count = f"{slug}-{count}", count + 1
            found.add(name)
    return found


def check_links(page):
    for n, line in enumerate(without_code(page.read_text()), 1):
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            to = (page.parent / name).resolve() if name else page
            if not to.exists():
                fault(page, n, f"link to {target}: no such file")
            elif anchor and anchor not in anchors(to):
                fault(page, n, f"link to {target}: no such heading")


def exists(name):
    """Also as seen from tests/; a part in capitals stands for any."""
    pattern = re.sub(r"\b[A-Z]+\b", "*", name.rstrip("./"))
    return any(any(top.glob(pattern)) for top in (root, root / "tests"))


def check_paths(page):
    for n, line in enumerate(without_code(page.read_text()), 1):
        for span in re.findall(r"`([^`]+)`", line):
            for path in re.findall(rf"(?<![\w/.-])(?:{TOP})/[\w./*-]+", span):
                if not exists(path):
                    fault(page, n, f"{path}: no such file")


def check_citations(source):
    for n, line in enumerate(source.read_text(errors="replace").split("\n"), 1):
        for name in re.findall(r"\b(?:docs/)?[\w-]+\.md\b", line):
            if not any((folder / name).exists() for folder in (root, root / "docs", root / "docs" / "internals")):
                fault(source, n, f"cites {name}: no such document")
        if re.search(r"\bDESIGN \d", line):
            fault(source, n, "cites a design document")


def rows(page):
    for n, line in enumerate(page.read_text().split("\n"), 1):
        if line.startswith("|"):
            yield n, [cell.strip() for cell in line.strip("|").split(" | ")]


def check_places(page):
    for n, cells in rows(page):
        row = " ".join(cells)
        files = [root / path for path in re.findall(rf"`((?:{TOP})/[\w./-]+\.\w+)`", row)]
        text = "".join(path.read_text() for path in files if path.exists())
        for name in re.findall(r"`(?:\w+::)*(\w+)\(\)`", row):
            if not re.search(rf"\b{name}\(", text):
                fault(page, n, f"{name}(): in none of the files that the row names")


def check_rooms(page):
    rooms = {path.name for path in (root / "src").iterdir() if path.is_dir()}
    stated = {}
    for n, cells in rows(page):
        name = cells[0].strip("`")
        if name in rooms and cells[0].startswith("`"):
            stated[name] = (n, set(re.findall(r"\w+", cells[2])) if len(cells) > 2 else set())
    for room in sorted(rooms):
        included = set()
        for source in (root / "src" / room).rglob("*"):
            if source.suffix in {".h", ".cpp", ".S"}:
                included |= set(re.findall(r'#include "(\w+)/', source.read_text()))
        included = (included & rooms) - {room}
        if room not in stated:
            fault(page, 1, f"table of rooms: {room} is missing")
        elif stated[room][1] != included:
            fault(page, stated[room][0], f"{room} includes {', '.join(sorted(included)) or 'no other room'}")


def check_size(pages, most_pages, whom):
    if len(pages) > most_pages:
        fault(pages[-1], 1, f"{len(pages)} pages {whom}; at most {most_pages}")
    for page in pages:
        written = re.sub(r"<!-- recomputed: .*?<!-- end -->", "", page.read_text(), flags=re.S)
        written = "\n".join(without_code(written))
        words, most = len(re.findall(r"\w\S*", written)), MOST_WORDS_OF_EVIDENCE if page.name.startswith(EVIDENCE) else MOST_WORDS
        if words > most and page.name not in REFERENCES:
            fault(page, 1, f"{words} words; at most {most}")


def finish(files):
    print("\n".join(faults) or f"{len(files)} files: no fault")
    return 1 if faults else 0


def main():
    if not (root / "src").exists():
        pages = list(root.rglob("*.md"))
        for page in pages:
            check_links(page)
        return finish(pages)
    listed = shutil.which("git") and subprocess.run(
        ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True)
    if listed and listed.returncode == 0:
        files = [root / name for name in listed.stdout.splitlines()]
    else:  # no git, or unpacked from an archive
        files = [path for top in [*TOP.split("|"), "*.md"] for path in root.glob(top + "/**/*" if "*" not in top else top)]
    files = [path for path in files if path.is_file()]
    for path in files:
        if path.suffix == ".md":
            check_links(path)
            check_paths(path)
        elif path.suffix in SOURCES and path != pathlib.Path(__file__).resolve():
            check_citations(path)
    architecture, internals = root / "docs" / "architecture.md", sorted((root / "docs" / "internals").glob("*.md"))
    users = sorted(set((root / "docs").glob("*.md")) - {architecture})
    check_size([architecture, *internals], MOST_INTERNALS, "for the inside")
    check_size(users, MOST_USERS, "for users")
    check_places(architecture)
    check_rooms(architecture)
    return finish(files)


sys.exit(main())
