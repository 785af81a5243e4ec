#!/usr/bin/env bash
# pyverbs' own tests (Debian's python3-pyverbs has them) over Soft-RoCE: each ends under Pinion as it ends without.
# A minute.
#
#   tests/softroce/pyverbs.sh BUILD-DIRECTORY
set -euo pipefail
build=$(realpath "$1")
tests=/usr/share/doc/rdma-core/tests
if [ ! -e $tests/run_tests.py ]; then
  echo "skipped: the tests of python3-pyverbs are not installed"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r $tests "$work/tests"
find "$work/tests" -name '*.gz' -exec gunzip {} +
mkdir "$work/share"
cat >"$work/guest" <<END
export PYTHONDONTWRITEBYTECODE=1
cd "$work"
# run NAME COMMAND...: the tests' lines, and the status.
run() {
  local name=\$1
  shift
  timeout 300 "\$@" /usr/bin/python3 tests/run_tests.py --dev rxe0 -v >"share/\$name.all" 2>&1
  echo "status \$?" >>"share/\$name.all"
  sed -E '/^pinion: /d; /^=====/,/^Ran /{/^Ran /!d}; s/^(Ran .*) in .*/\1/' "share/\$name.all" >"share/\$name"
}
run plain env
run default $build/bin/pinion run --log /tmp/default --
run strict $build/bin/pinion run --remote-keys strict --log /tmp/strict --
END
"$build/bin/pinion" softroce --memory 1G --timeout 900s --share "$work/share" -- bash "$work/guest"
cd "$work/share"
tail -4 plain
failed=0
[ "$(grep -c ' ok$' plain)" -ge 50 ] || { echo "FAILED: few tests ran"; tail -20 plain.all; failed=1; }
for keys in default strict; do
  grep -q '^pinion: .*registers with the program.s own' $keys.all || { echo "FAILED: $keys: Pinion took no part"; failed=1; }
  diff plain $keys || { echo "FAILED: $keys"; failed=1; }
done
exit $failed
