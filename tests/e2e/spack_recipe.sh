#!/usr/bin/env bash
# The recipe for Spack, as far as it can be looked at without Spack: Python accepts it, its version is the command's, and each option
# that it sets is one of the build's.
source "$(dirname "$0")/script.bash"
recipe=$(cd "$(dirname "$0")/../.." && pwd)/packaging/spack/package.py

python3 - "$recipe" "$build/CMakeCache.txt" "$("$build/bin/pinion" --version | sed 's/.* //')" >"$work/out" 2>&1 <<'END' || fail "$(cat "$work/out")"
import ast
import re
import sys

recipe, cache, version = sys.argv[1:]
calls = [node for node in ast.walk(ast.parse(open(recipe).read())) if isinstance(node, ast.Call)]
words = lambda name: [[a.value for a in c.args if isinstance(a, ast.Constant)] for c in calls if getattr(c.func, "attr", getattr(c.func, "id", "")) == name]
options = re.findall(r"^(\w+):", open(cache).read(), re.MULTILINE)
variants = [name for name, *_ in words("variant")]
named = [(name, variant) for name, variant in words("define_from_variant")] + [(name, None) for name, *_ in words("define")]
assert len(named) >= 5, named
for name, variant in named:
    assert name in options, f"{name} is no option of the build"
    assert variant is None or variant in variants, f"{variant} is no variant"
assert version in [name for name, *_ in words("version")], f"no version {version}"
END

[ "$failures" -eq 0 ]
