#!/usr/bin/env bash
# tests/second_look, by which ./test runs a failed test once more: one that fails beside others only is named, one that
# fails again, crashes, or found stale memory is not.
source "$(dirname "${BASH_SOURCE[0]}")/script.bash"

tests=$work/tests
mkdir "$tests"
cat >"$tests/CTestTestfile.cmake" <<TESTS
add_test(good true)
add_test(Suite.Once/0 sh -c "test -e $work/seen || { touch $work/seen; exit 1; }")
add_test([[Kinds/Suite.Parameter/"size=4, name=two words"]] sh -c "test -e $work/seen2 || { touch $work/seen2; exit 1; }")
add_test(always false)
add_test(hangs sh -c "test -e $work/hung || { touch $work/hung; sleep 60; }")
set_tests_properties(hangs PROPERTIES TIMEOUT 3)
add_test(harm sh -c "test -e $work/harmed || { touch $work/harmed; echo STALE: other contents were sent; exit 1; }")
add_test(crash sh -c "test -e $work/crashed || { touch $work/crashed; kill -SEGV \$\$; }")
TESTS
ctest --test-dir "$tests" --output-on-failure >"$work/out"
look=$(dirname "${BASH_SOURCE[0]}")/../second_look
"$look" "$tests" "$work/out" >"$work/passed" 2>"$work/err" || fail "status: $(cat "$work/err")"
[ "$(cat "$work/passed")" = 'Suite.Once/0
Kinds/Suite.Parameter/"size=4, name=two words"
hangs' ] || fail "passed: $(cat "$work/passed" "$work/out")"

# More than a few are a pattern.
for i in 1 2 3 4 5 6; do
  echo "add_test(once$i sh -c \"test -e $work/once$i || { touch $work/once$i; exit 1; }\")" >>"$tests/CTestTestfile.cmake"
done
ctest --test-dir "$tests" --output-on-failure >"$work/out"
"$look" "$tests" "$work/out" >"$work/passed" 2>"$work/err" || fail "status: $(cat "$work/err")"
[ ! -s "$work/passed" ] || fail "seven failures: $(cat "$work/passed")"

[ "$failures" -eq 0 ]
