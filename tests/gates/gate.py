"""What the gates share: the repository's files, and faults that are one line each."""
import pathlib
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77


def git(*arguments):
    """The output of git, or None where there is no history."""
    try:
        done = subprocess.run(("git", "-C", str(root)) + arguments, capture_output=True, text=True, errors="replace")
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def files(folders, endings):
    """The repository's files, as paths relative to its root."""
    listed = git("ls-files")
    if listed is None:
        found = [str(p.relative_to(root)) for folder in folders for p in (root / folder).rglob("*") if p.is_file()]
    else:
        found = listed.split("\n")
    return sorted(f for f in found if f.startswith(tuple(folders)) and f.endswith(tuple(endings)) and (root / f).exists())


def exceptions(name):
    """The lines `NAME  reason` of tests/gates/NAME: the names."""
    lines = (root / "tests/gates" / name).read_text().split("\n")
    rows = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    for row in rows:
        if len(row) != 2:
            sys.exit(f"tests/gates/{name}: '{row[0]}' has no reason")
    return {row[0] for row in rows}


def end(faults, checked):
    """Prints the faults and ends the gate."""
    for fault in faults:
        print(fault)
    print(f"{checked}: {len(faults) or 'no'} fault{'s' if len(faults) != 1 else ''}")
    sys.exit(1 if faults else 0)


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)
