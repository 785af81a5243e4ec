# Shared by ./demo and ./test: the option --build, and work that is shown as a line for each phase while a log
# file has the output. Sourced by a script that has set `program`, its name for messages.

# build_option ARGUMENTS...: sets `build`, an absolute path, and `others`, the arguments beside `--build DIR`. The caller has
# not changed its directory yet.
build_option() {
  build=$(cd "$(dirname "$0")" && pwd)/build
  others=()
  while [ $# -gt 0 ]; do
    if [ "$1" = --build ] && [ -n "${2-}" ]; then
      build=$(realpath -m -- "$2")
      shift
    else
      others+=("$1")
    fi
    shift
  done
  # Preload libraries and options are lists with these separators, which know no quoting.
  if [[ $build == *[[:space:]:,]* ]]; then
    echo "./$program: LD_PRELOAD cannot carry a path with a space, a colon or a comma: $build; name another build directory: ./$program --build DIR" >&2
    exit 2
  fi
  if ! mkdir -p "$build" 2>/dev/null || [ ! -w "$build" ]; then
    echo "./$program: cannot write to $build; name another build directory: ./$program --build DIR" >&2
    exit 2
  fi
}

# While a phase lasts, on a terminal: its seconds, and ninja's last [done/all] in the log. Ctrl-C reaches the script alone.
show_progress() {
  local what=$1 begun=$SECONDS lines=$2 step
  while sleep 1 && kill -0 $$ 2>/dev/null; do
    step=$(tail -n "+$((lines + 1))" "$log" | grep -oE '^\[[0-9]+/[0-9]+\]' | tail -n 1)
    printf '\r%-58s %4d s  %-14s' "$what" $((SECONDS - begun)) "$step"
  done
}

# phase WHAT COMMAND...: one line; a failure ends the script with the end of the log. With may_ask=yes before it, the line
# stands still, so that sudo can ask for a password.
phase() {
  local what=$1 begun=$SECONDS status=0 ticker='' lines
  shift
  printf '== %s\n' "$what" >>"$log"
  lines=$(wc -l <"$log")
  printf '%-58s' "$what"
  if [ -t 1 ] && [ -z "${may_ask-}" ]; then
    show_progress "$what" "$lines" &
    ticker=$!
  fi
  "$@" >>"$log" 2>&1 || status=$?
  if [ -n "$ticker" ]; then
    kill "$ticker"
    wait "$ticker" 2>/dev/null || true
    printf '\r%-58s' "$what"
  fi
  printf ' %4d s%-16s\n' $((SECONDS - begun)) ''
  [ $status -eq 0 ] && return
  {
    printf './%s: failed: %s; the end of %s:\n' "$program" "$what" "$log"
    tail -n "+$((lines + 1))" "$log" | tail -n 15 | sed 's/^/    /'
  } >&2
  exit 1
}
