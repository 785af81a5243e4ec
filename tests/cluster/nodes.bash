# Several nodes on one machine, for tests of launchers. Sourced.
#
# A node is a set of namespaces: a network of its own with an address on a common bridge, a host name, System V memory
# and a boot id, a private /tmp and /dev/shm. /etc/hosts names them all: node0, node1 ... Everything else,
# and the directories below /tmp that are given to make_nodes, is the file system that they share. Processes
# are the machine's.
#
# All of it is within a *room*, which is namespaces of processes, mounts and network around the whole script:
# when the script ends, in any way, the kernel ends the room's processes and takes down its mounts and
# networks.

# enter_room SCRIPT ARGUMENTS...: starts the script again, in a room of its own; within it, does nothing. Where no
# namespaces can be made: one line, and status 77.
enter_room() {
  if [ -n "${PINION_ROOM:-}" ]; then
    trap 'exit 130' INT TERM # the first process of a room would ignore them
    ip link set lo up
    return
  fi
  if [ ! -e /etc/hosts ]; then
    echo "skipped: /etc/hosts is missing, which the nodes' names are laid over"
    exit 77
  fi
  local room=(unshare --fork --pid --kill-child --mount-proc --mount --net --uts --ipc)
  if ! "${room[@]}" ip link add bridge type bridge 2>/dev/null; then
    echo "skipped: namespaces of network, mounts and processes cannot be made here (root is needed, and veth and bridge)"
    exit 77
  fi
  PINION_ROOM=1 exec "${room[@]}" "$@"
}

# make_nodes COUNT DIRECTORY SHARED...: node0 ... below the directory, which they share as they do SHARED. Afterwards `agent` is the
# command to start something on a node as ssh does, and `nodes` has their names.
make_nodes() {
  local count=$1 i pid
  cluster=$2/cluster agent=$2/cluster/agent nodes=()
  mkdir -p "$cluster"
  cat >"$agent" <<END
#!/bin/bash
# agent [-OPTION...] NODE COMMAND...: by a shell on the node, with the environment that ssh would give it: none of this one.
while [[ \$1 = -* ]]; do shift; done
node=\$1
shift
exec env -i HOME="$HOME" USER="\$(id -un)" SHELL=/bin/bash PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \\
  nsenter --target "\$(cat "$cluster/\$node")" --net --uts --ipc --mount --root \\
  bash -c "cd; \$*"
END
  chmod +x "$agent"
  {
    echo "127.0.0.1 localhost"
    for ((i = 0; i < count; ++i)); do echo "10.77.1.$((i + 1)) node$i"; done
  } >"$cluster/hosts"
  mount --bind "$cluster/hosts" /etc/hosts
  ip link add bridge type bridge
  ip link set bridge up
  for ((i = 0; i < count; ++i)); do
    unshare --net --uts --ipc --mount bash -c "$(declare -f become_node); become_node \"\$@\"" - "node$i" "${@:2}" &
    pid=$!
    until [ -e "$cluster/node$i.ready" ]; do
      [ "$(cut -d" " -f3 "/proc/$pid/stat")" != Z ] || return 1
      sleep 0.02
    done
    ip link add "to-node$i" type veth peer name eth0 netns $pid && ip link set "to-node$i" master bridge up || return
    echo $pid >"$cluster/node$i"
    "$agent" "node$i" "ip link set lo up && ip address add 10.77.1.$((i + 1))/24 dev eth0 && ip link set eth0 up" || return
    nodes+=("node$i")
  done
}

# become_node NAME DIRECTORY SHARED...: holds the namespaces of a node, until it is killed.
become_node() {
  local name=$1 directory file
  hostname "$name"
  cp "/proc/sys/kernel/random/uuid" "$2/cluster/$name.boot"
  mount --bind "$2/cluster/$name.boot" /proc/sys/kernel/random/boot_id # MPI libraries compare it
  mount -t tmpfs tmpfs /dev/shm
  # Held open, these directories of /tmp can be put into the new one.
  local held=()
  for directory in "${@:2}"; do
    exec {file}<"$directory"
    held+=("$file")
  done
  mount -t tmpfs tmpfs /tmp
  chmod 1777 /tmp
  for directory in "${@:2}"; do
    mkdir -p "$directory" &&
      mount --no-canonicalize --rbind "/proc/self/fd/${held[0]}" "$directory" || exit
    held=("${held[@]:1}")
  done
  touch "$2/cluster/$name.ready" || exit
  exec sleep infinity
}

# on NODE COMMAND...: as a user logged in there, with this environment and in this directory.
# With --root, the node has the root directory of a chroot in which the script runs.
on() {
  # shellcheck disable=SC2016
  nsenter --target "$(cat "$cluster/$1")" --net --uts --ipc --mount --root sh -c 'cd "$0" && exec "$@"' "$PWD" "${@:2}"
}
