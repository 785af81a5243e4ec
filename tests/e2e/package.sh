#!/usr/bin/env bash
# The Debian packages: their contents and dependencies, stripped binaries with debug information apart, and projects
# outside of this tree, built against the unpacked packages by CMake and by pkg-config. Unpacked they are an installed
# tree that has moved. `tests/bare-machine --package` installs them.
source "$(dirname "$0")/script.bash"
source=$(cd "$(dirname "$0")/../.." && pwd)
for tool in cpack dpkg-shlibdeps dpkg-deb file; do
  command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
done

cpack --config "$build/CPackConfig.cmake" -B "$work/packages" >"$work/out" 2>&1 || { fail "cpack: $(cat "$work/out")"; exit 1; }
package() { find "$work/packages" -maxdepth 1 -name "$1_*" -print -quit; }
for name in pinion libpinion-dev pinion-dbgsym; do
  [ -f "$(package $name)" ] || { fail "no package $name: $(ls "$work/packages")"; exit 1; }
done

depends=$(dpkg-deb -f "$(package pinion)" Depends)
grep -q 'libc6 (>= ' <<<"$depends" || fail "pinion depends on: $depends"
grep -E 'mpi|ibverbs|fabric|pinion' <<<"$depends" && fail "pinion depends on: $depends"
version=$("$build/bin/pinion" --version | sed 's/.* //')
[ "$(dpkg-deb -f "$(package libpinion-dev)" Depends)" = "pinion (= $version)" ] || fail "libpinion-dev: $(dpkg-deb -f "$(package libpinion-dev)")"

root=$work/root/usr
for name in pinion libpinion-dev; do dpkg-deb -x "$(package $name)" "$work/root"; done
dpkg-deb -x "$(package pinion-dbgsym)" "$work/debug"
for file in bin/pinion share/man/man1/pinion-run.1 share/man/man3/pinion_acquire.3 share/bash-completion/completions/pinion \
  include/pinion/pinion.hpp share/doc/pinion/LICENSE share/doc/pinion/examples/lease.cpp; do
  [ -e "$root/$file" ] || fail "no package has $file"
done
[ -d "$root/libexec" ] && fail "a package has programs of the bench"

# Stripped; the debug information is found by build id.
stripped=0
for file in "$root"/bin/pinion "$root"/lib/libpinion*.so*; do
  [ -L "$file" ] && continue
  readelf -WS "$file" | finds '\.debug_info' && fail "$file is not stripped"
  id=$(readelf -n "$file" | sed -n 's/ *Build ID: //p')
  readelf -WS "$work/debug/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug" 2>&1 | finds '\.debug_line' || fail "no debug information of $file"
  readelf -d "$file" | grep RUNPATH | grep -vE '\[\$ORIGIN(:\$ORIGIN(/\.\.)+)*\]' && fail "$file looks for libraries elsewhere"
  stripped=$((stripped + 1))
done
[ $stripped -ge 5 ] || fail "$stripped binaries"

# verified COMMAND...: it prints that its own check holds.
verified() { "$@" >"$work/out" 2>&1 && grep -q 'verified$' "$work/out" || fail "$*: $(cat "$work/out")"; }

export PKG_CONFIG_PATH=$root/lib/pkgconfig
# shellcheck disable=SC2046
gcc -std=c99 "$root/share/doc/pinion/examples/registration_cache.c" -o "$work/by_pkg_config" $(pkg-config --cflags --libs pinion) || fail "pkg-config"
# shellcheck disable=SC2046
gcc -std=c11 "$root/share/doc/pinion/examples/firehose.c" -o "$work/firehose" $(pkg-config --cflags --libs pinion-firehose) || fail "pkg-config: firehose"
verified env LD_LIBRARY_PATH="$root/lib" "$work/by_pkg_config"
verified env LD_LIBRARY_PATH="$root/lib" OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 "$work/firehose"

{ cmake -G Ninja -S "$source/tests/package" -B "$work/outside" -DCMAKE_PREFIX_PATH="$root" -DEXAMPLES="$root/share/doc/pinion/examples" &&
  cmake --build "$work/outside"; } >"$work/out" 2>&1 || fail "find_package(pinion): $(cat "$work/out")"
for program in registration_cache lease interface; do verified "$work/outside/$program"; done

# The stripped command and preload.
[ "$("$root/bin/pinion" --version)" = "pinion $(pkg-config --modversion pinion)" ] || fail "the packaged command"
"$root/bin/pinion" run --log "$work/logs" -- "$work/outside/lease" 30 >"$work/out" 2>&1 || fail "run: $(cat "$work/out")"
"$root/bin/pinion" report "$work/logs" --json --prometheus "$work/metrics" >"$work/out" 2>&1 || fail "report: $(cat "$work/out")"
grep -q '"total": 60' "$work/out" || fail "report: $(head -50 "$work/out")"

[ "$failures" -eq 0 ]
