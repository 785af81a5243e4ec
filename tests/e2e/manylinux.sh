#!/usr/bin/env bash
# libpinion and the preloads as the preset manylinux builds them, for glibc 2.28: neither a newer symbol of glibc, nor a library that a
# machine may lack; leases and a refusal from Python. Skipped where zig is missing: nothing is fetched here. The build stays beside the
# others, and is quick from the second time on.
source "$(dirname "$0")/script.bash"
source=$(cd "$(dirname "$0")/../.." && pwd)
command -v zig >/dev/null || command -v python-zig >/dev/null || { echo "skipped: no zig: pip install ziglang"; exit 77; }
cmake --preset manylinux -S "$source" -B "$build-manylinux" >"$work/out" 2>&1 &&
  ninja -C "$build-manylinux" pinion pinion-preload pinion-symbols pinion-heap >"$work/out" 2>&1 || { fail "build: $(tail -n 20 "$work/out")"; exit 1; }
libraries=$build-manylinux/lib

for name in libpinion.so.0 libpinion-preload.so libpinion-symbols.so libpinion-heap.so; do
  objdump -T "$libraries/$name" >"$work/symbols" || fail "objdump $name"
  newest=$({ echo 2.28; grep -o 'GLIBC_2[.0-9]*' "$work/symbols" | cut -d_ -f2; } | sort -uV | tail -n 1)
  [ "$newest" = 2.28 ] || fail "$name needs glibc $newest: $(grep "GLIBC_$newest" "$work/symbols")"
  readelf -d "$libraries/$name" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
    grep -vE '^(libpinion\.so\.0|lib(c|m|dl|rt|pthread|gcc_s)\.so\.[0-9]+|ld-linux-x86-64\.so\.2)$' && fail "$name needs that library"
done

cat >"$work/app.py" <<'END'
import pinion

with pinion.Session(), pinion.Domain("emulated") as domain:
    domain.acquire(bytearray(1 << 20), pinion.WRITE).close()
    print("misses", domain.statistics()["misses"])
    pinion.Domain("nonsense")
END
PYTHONPATH=$source/python LD_LIBRARY_PATH=$libraries LD_PRELOAD=$libraries/libpinion-preload.so python3 "$work/app.py" >"$work/out" 2>&1
grep -q '^misses 1$' "$work/out" && grep -q 'Error.*nonsense' "$work/out" || fail "leases from Python: $(cat "$work/out")"
exit $((failures > 0))
