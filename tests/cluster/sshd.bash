# A real sshd on each of the nodes of nodes.bash. Sourced after make_nodes.

# start_sshd DIRECTORY: keys and configuration go below the directory, which the nodes share. Afterwards `ssh` is a command that is
# used as ssh is.
start_sshd() {
  local directory=$1/sshd node
  mkdir -p "$directory" /run/sshd
  ssh-keygen -q -t ed25519 -N '' -f "$directory/host" && ssh-keygen -q -t ed25519 -N '' -f "$directory/user" || return
  cp "$directory/user.pub" "$directory/authorized"
  cat >"$directory/config" <<END
HostKey $directory/host
AuthorizedKeysFile $directory/authorized
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
END
  ssh=$directory/ssh
  cat >"$ssh" <<END
#!/bin/sh
exec ssh -F none -i $directory/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "\$@"
END
  chmod +x "$ssh"
  for node in "${nodes[@]}"; do on "$node" "$(command -v sshd || echo /usr/sbin/sshd)" -f "$directory/config" || return; done
}
