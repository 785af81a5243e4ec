"""The parser's table: each command with its arguments and options, as the built `pinion` prints it."""
import json
import subprocess


def read(command, **more):
    return json.loads(subprocess.run([command, "--parser-table"], check=True, capture_output=True, **more).stdout)
