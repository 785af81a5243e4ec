#!/usr/bin/env bash
# The RPMs: their contents and dependencies, stripped binaries, no file of the distribution's own directories, and a command that
# works where it is unpacked.
source "$(dirname "$0")/script.bash"
for tool in cpack rpmbuild rpm rpm2cpio cpio; do
  command -v $tool >/dev/null || { echo "skipped: no $tool: apt-get install rpm cpio"; exit 77; }
done

cpack -G RPM --config "$build/CPackConfig.cmake" -B "$work/packages" >"$work/out" 2>&1 || { fail "cpack: $(cat "$work/out")"; exit 1; }
version=$("$build/bin/pinion" --version | sed 's/.* //')
package() { echo "$work/packages/$1-$version-1.$(uname -m).rpm"; }
for name in pinion pinion-devel; do
  [ -f "$(package $name)" ] || { fail "no package $name: $(ls "$work/packages")"; exit 1; }
done
asked() { rpm -qp --dbpath "$work/rpms" "$@" 2>&1; }

requires=$(asked --requires "$(package pinion)")
grep -q '^libc\.so\.6(GLIBC_2' <<<"$requires" || fail "pinion requires: $requires"
grep -E 'mpi|ibverbs|fabric|busybox' <<<"$requires" && fail "pinion requires: $requires"
asked --requires "$(package pinion-devel)" | finds -x "pinion = $version" || fail "pinion-devel requires: $(asked --requires "$(package pinion-devel)")"

# Directories of the package `filesystem` stay its own.
for name in pinion pinion-devel; do
  asked -l "$(package $name)" | grep -xE '/usr|/usr/(bin|lib|lib64|libexec|include|share)|/usr/share/(man|doc|man/man.|zsh|fish|bash-completion)|/usr/lib(64)?/(cmake|pkgconfig)' &&
    fail "$name owns that directory"
  rpm2cpio "$(package $name)" | (mkdir -p "$work/$name" && cd "$work/$name" && cpio -id --quiet) || fail "unpacking $name"
done
for file in pinion/usr/bin/pinion pinion/usr/share/man/man1/pinion-run.1 pinion/usr/share/bash-completion/completions/pinion \
  pinion/usr/share/doc/pinion/LICENSE pinion-devel/usr/include/pinion/pinion.hpp \
  pinion-devel/usr/share/man/man3/pinion_acquire.3; do
  [ -e "$work/$file" ] || fail "no package has $file"
done
for file in "$work"/pinion/usr/bin/pinion "$work"/pinion/usr/lib*/libpinion*.so; do
  readelf -WS "$file" | finds '\.debug_info' && fail "$file is not stripped"
done
# shellcheck disable=SC2016
"$work/pinion/usr/bin/pinion" run -- sh -c 'echo "$LD_PRELOAD"' >"$work/out" 2>&1 || fail "run: $(cat "$work/out")"
grep -q "^$work/pinion/usr/lib.*/pinion/\$LIB/libpinion-preload.so" "$work/out" || fail "run: $(cat "$work/out")"
grep -i 'ld\.so' "$work/out" && fail "run: $(cat "$work/out")"
[ "$failures" -eq 0 ]
