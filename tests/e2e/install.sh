#!/usr/bin/env bash
# Building and installing as a packager and a new user do: which parts are in and out, an installed tree that works and
# goes away again, and the refusals of the two commands.
source "$(dirname "$0")/script.bash"
source=$(cd "$(dirname "$0")/../.." && pwd)

# configured WHAT CMAKE-OPTIONS...: from a source whose path has a space.
mkdir "$work/a checkout"
cp -r "$source"/{CMakeLists.txt,CMakePresets.json,LICENSE,README.md,bench,cli,cmake,docs,examples,include,packaging,papers,softroce,src,tests} "$work/a checkout"
chmod -R a-w "$work/a checkout"
configured() {
  cmake -G Ninja -S "$work/a checkout" -B "$work/build" "$@" >"$work/out" 2>&1
}
part() { grep -q -- "^--   $1" "$work/out" || fail "no line '$1': $(cat "$work/out")"; }
configured -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON -DPINION_VERBS=OFF || fail "$(cat "$work/out")"
part 'out  tests (BUILD_TESTING): needs GoogleTest (Debian: libgtest-dev)'
part 'out  RDMA devices and --front verbs (PINION_VERBS): PINION_VERBS=OFF'
configured -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON -DBUILD_TESTING=OFF -DPINION_VERBS=AUTO || fail "$(cat "$work/out")"
part 'out  tests (BUILD_TESTING): BUILD_TESTING=OFF'
part '\(in \|out\)  RDMA devices and --front verbs (PINION_VERBS)'
configured -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON -DBUILD_TESTING=ON && fail "tests without GoogleTest"
grep -q 'BUILD_TESTING=ON needs GoogleTest' "$work/out" || fail "$(cat "$work/out")"
configured -DPINION_UCX=perhaps && fail "a part that is neither in nor out"
grep -q 'PINION_UCX=perhaps: valid are AUTO, ON and OFF' "$work/out" || fail "$(cat "$work/out")"

# This installs from the build itself. The manifest is the build's, and is put back.
[ ! -e "$build/install_manifest.txt" ] || cp "$build/install_manifest.txt" "$work/manifest"
cmake --install "$build" --prefix "$work/prefix" >"$work/out" 2>&1 || fail "install: $(cat "$work/out")"
for file in bin/pinion include/pinion/pinion.h share/doc/pinion/LICENSE share/doc/pinion/docs/commands.md; do
  [ -e "$work/prefix/$file" ] || fail "$file is not installed"
done
[ ! -e "$work/prefix/share/doc/pinion/docs/internals" ] || fail "pages about the inside are installed"
python3 "$source/tests/docs_check.py" "$work/prefix/share/doc/pinion" >"$work/out" || fail "installed documents: $(cat "$work/out")"
"$work/prefix/bin/pinion" doctor >"$work/out" 2>&1 || fail "doctor: $(cat "$work/out")"
grep -A 40 '^memory monitors' "$work/out" | grep -q '^  symbols: [^u]' || fail "doctor: $(cat "$work/out")"
PINION_TEST_MONITOR=symbols "$work/prefix/bin/pinion" run -- sh -c 'echo $LD_PRELOAD' >"$work/out" 2>&1 || fail "run: $(cat "$work/out")"
grep -q "$work/prefix/lib.*/libpinion-symbols.so:$work/prefix/lib.*/libpinion-preload.so" "$work/out" || fail "run: $(cat "$work/out")"
[ ! -e "$work/prefix/libexec" ] || fail "programs of the bench are installed"
touch "$work/prefix/include/pinion/of-others.h"
cmake --build "$build" --target uninstall >"$work/out" 2>&1 || fail "uninstall: $(cat "$work/out")"
left=$(cd "$work/prefix" && find . -not -type d)
[ "$left" = ./include/pinion/of-others.h ] || fail "uninstall left: $left"
[ ! -e "$work/prefix/share/doc/pinion" ] || fail "uninstall left an empty directory of ours"

# This installs into a package's directory.
DESTDIR=$work/package cmake --install "$build" --prefix /usr >"$work/out" 2>&1 || fail "DESTDIR: $(cat "$work/out")"
"$work/package/usr/bin/pinion" --version >/dev/null || fail "the packaged command"
DESTDIR=$work/package cmake --build "$build" --target uninstall >"$work/out" 2>&1 || fail "uninstall: $(cat "$work/out")"
[ -z "$(find "$work/package" -not -type d)" ] || fail "DESTDIR: uninstall left: $(find "$work/package" -not -type d)"
rm -f "$build/install_manifest.txt"
[ ! -e "$work/manifest" ] || cp "$work/manifest" "$build/install_manifest.txt"

# refused WHAT COMMAND...: one line and status 2, before anything else is done.
refused() {
  local what=$1 status=0
  shift
  "$@" >"$work/out" 2>&1 || status=$?
  [ $status -eq 2 ] && [ "$(wc -l <"$work/out")" -eq 1 ] && grep -q -- "$what" "$work/out" || fail "$*: status $status: $(cat "$work/out")"
}
for command in demo test; do
  refused "usage: ./$command" "$source/$command" --no-such
  refused "a space, a colon or a comma: $work/two words; name another .*--build DIR" "$source/$command" --build "$work/two words"
  refused 'cannot write to /proc/1/build; name another .*--build DIR' "$source/$command" --build /proc/1/build
  [ ! -e "$work/two words" ] || fail "$command left a directory"
done

# A phase that fails is named, with the end of the log.
cat >"$work/phases" <<'END'
program=demo log=$1
source "$2"
phase "what works" true
phase "what fails" sh -c 'echo before; echo the reason >&2; exit 3'
echo not reached
END
bash "$work/phases" "$work/log" "$source/scripts/phases.bash" >"$work/out" 2>"$work/err" && fail "a phase that failed"
[ "$(wc -l <"$work/out")" -eq 2 ] && grep -qE '^what works +[0-9]+ s' "$work/out" || fail "phases: $(cat "$work/out")"
grep -q "failed: what fails; the end of $work/log" "$work/err" && grep -q '^    the reason$' "$work/err" || fail "phases: $(cat "$work/err")"

# A user who lacks sudo gets the command for root.
mkdir "$work/tools"
for tool in bash env id dpkg-query apt-get apt-cache grep realpath; do ln -s "$(command -v $tool)" "$work/tools/"; done
if [ "$(id -u)" -ne 0 ]; then as_user=(); else as_user=(setpriv --reuid 65534 --clear-groups); fi
chmod a+rx "$work"
# The user may read this directory: a checkout in root's home is not one.
(cd "$work" && "${as_user[@]}" env PATH="$work/tools" bash -s these no-such-package) \
  <"$source/scripts/install-dependencies" >"$work/out" 2>&1 &&
  fail "without sudo: $(cat "$work/out")"
[ "$(wc -l <"$work/out")" -eq 1 ] && grep -q "no sudo here; root can type '.* these no-such-package'" "$work/out" ||
  fail "without sudo: $(cat "$work/out")"

[ "$failures" -eq 0 ]
