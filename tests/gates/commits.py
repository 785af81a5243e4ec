#!/usr/bin/env python3
"""First lines of commits have at most 72 characters, and a blank line follows. Commits before SINCE are older than the rule."""
import gate

SINCE = "01ac38f647be"
MOST = 72


def main():
    log = gate.git("log", "--no-merges", "--format=%h%x00%B%x01", f"{SINCE}..HEAD")
    if log is None:
        gate.skip("there is no history since the rule")
    faults, count = [], 0
    for commit in log.split("\x01"):
        if not commit.strip():
            continue
        count += 1
        name, _, message = commit.strip().partition("\0")
        lines = message.split("\n")
        if len(lines[0]) > MOST:
            faults.append(f"{name}: the first line has {len(lines[0])} characters; at most {MOST}: {lines[0]}")
        if len(lines) > 1 and lines[1].strip():
            faults.append(f"{name}: a blank line follows the first: {lines[0]}")
    gate.end(faults, f"{count} commits")


main()
