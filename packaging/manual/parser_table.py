"""The parser's table: each command with its arguments and options, as the built `pinion` and its bench print it."""
import json
import subprocess


def read(command, **more):
    def ask(*words):
        return json.loads(subprocess.run([command, *words, "--parser-table"], check=True, capture_output=True, **more).stdout)

    table, bench = ask(), ask("bench")
    table["commands"] = [{item["name"]: item for item in bench["commands"]}.get(item["name"], item) for item in table["commands"]]
    return {**table, "benches": bench["benches"]}
