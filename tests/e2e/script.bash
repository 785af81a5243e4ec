# The beginning of every end-to-end script. Sourced with the build directory as first argument.
set -uo pipefail
build=$1
unset PINION PINION_CONFIG LD_PRELOAD
# Where OpenCL is installed, hwloc's plugin brings a compiler into each MPI process. Registrations are kept once its code is
# read, and short programs end before.
export HWLOC_COMPONENTS=-opencl,-gl
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# Whether standard input has PATTERN. It reads all: `grep -q` ends early, and pipefail takes the writer's end for a failure.
finds() { grep "$@" >/dev/null; }

# one_line FILE: its text without the line breaks that wrap it.
one_line() { tr -s '\n ' '  ' <"$1"; }

# unwrapped FILE: its text with each of the engine's messages in one line.
unwrapped() { sed -z 's/\npinion:   / /g' "$1"; }

# eventually COMMAND...: whether it succeeds within a minute, which is more than any machine needs.
eventually() {
  local end=$((SECONDS + 60))
  until "$@"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.1
  done
}
