#!/bin/bash
# Stands for Proxmox VE's qm(1), as far as hookscripts see it: what calls them, when, with what there is then. VMs are real.
# After qm(1), "Hookscripts" of the administration guide, and qemu-server 8 (QemuServer.pm, QemuMigrate.pm, CLI/qm.pm):
#
# - a hookscript is called as SCRIPT VMID PHASE; it must be an executable file of a storage's snippets, or `qm set` refuses it;
# - pre-start: before QEMU; if it fails, the VM does not start, and no other phase follows;
# - post-start: QEMU runs, with /run/qemu-server/VMID.pid; a failure is a warning of the task;
# - pre-stop: before a stop or a shutdown; not before a VM ends by itself, and not where a VM migrates away;
# - post-stop: QEMU is gone, and its files of /run/qemu-server; `qm cleanup` calls it, which needs the configuration. A VM that
#   has migrated away has none on this node any more: nothing is called then;
# - a VM's number is its own on all nodes, and its name need not be; notes stand at the head of the configuration.
#
# usage: qm create|set VMID [--OPTION VALUE]... | start|stop|cleanup|destroy|config|status VMID | migrate VMID NODE [--online]
set -euo pipefail
configurations=/etc/pve/qemu-server
run=/run/qemu-server
snippets=/var/lib/vz/snippets

die() {
  printf '%s\n' "$*" >&2
  exit 255
}

[ $# -ge 2 ] || die "400 not enough arguments"
verb=$1 vm=$2
shift 2
[[ $vm =~ ^[1-9][0-9]{2,8}$ ]] || die "400 Parameter verification failed. vmid: type check ('integer') failed"
file=$configurations/$vm.conf
mkdir -p "$configurations" "$run"

value() { sed '/^\[/,$d' "$file" | sed -n "s/^$1: //p"; }
pid() { cat "$run/$vm.pid" 2>/dev/null; }
runs() { [ -n "$(pid)" ] && kill -0 "$(pid)" 2>/dev/null; }
require_configuration() { [ -e "$file" ] || die "Configuration file 'nodes/$(uname -n)/qemu-server/$vm.conf' does not exist"; }

# The path of a volume such as local:snippets/steadyvm.
script() { # script VOLUME
  [[ $1 == local:snippets/* ]] || die "'$1' is not in the snippets directory"
  local path=$snippets/${1#local:snippets/}
  [ -f "$path" ] || die "script '$1' does not exist"
  [ -x "$path" ] || die "script '$1' is not executable"
  printf '%s\n' "$path"
}

hook() { # hook PHASE
  local volume code=0
  volume=$(value hookscript)
  [ -n "$volume" ] || return 0
  "$(script "$volume")" "$vm" "$1" || code=$?
  [ "$code" = 0 ] || printf 'hookscript error for %s on %s: exit code %s\n' "$vm" "$1" "$code" >&2
  return "$code"
}

# As Proxmox keeps notes: a comment a line, with a colon written by its number.
notes() { printf '%s\n' "$1" | sed 's/%/%25/g; s/:/%3A/g; s/^/#/'; }

set_options() {
  while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || die "400 unable to parse option: $1"
    local key=${1#--} new=$2
    shift 2
    case "$key" in
      description)
        sed -i '/^#/d' "$file"
        { notes "$new" && cat "$file"; } >"$file.tmp"
        mv "$file.tmp" "$file"
        continue
        ;;
      delete)
        sed -i "/^$new: /d" "$file"
        continue
        ;;
      hookscript) script "$new" >/dev/null ;;
      name | cores | sockets | vcpus | memory | args) ;;
      *) die "Unknown option: $key" ;;
    esac
    sed -i "/^$key: /d" "$file"
    printf '%s: %s\n' "$key" "$new" >>"$file"
  done
}

start() {
  local cores sockets vcpus words
  cores=$(value cores) sockets=$(value sockets) vcpus=$(value vcpus)
  local maximum=$((${cores:-1} * ${sockets:-1}))
  hook pre-start || die "start failed: hookscript error for $vm on pre-start"
  # As words of a shell, which Proxmox's Text::ParseWords takes them for, too.
  eval "words=($(value args))"
  # Proxmox enters a scope VMID.scope of qemu.slice, in which QEMU then daemonizes. qemu_id.c has the library.
  LD_PRELOAD=/usr/lib/qemu-id.so systemd-run --quiet --scope --slice=qemu.slice --unit="$vm" /usr/bin/qemu-system-x86_64 -id "$vm" \
    -name "$(value name),debug-threads=on" -no-shutdown -pidfile "$run/$vm.pid" -daemonize \
    -smp "${vcpus:-$maximum},sockets=${sockets:-1},cores=${cores:-1},maxcpus=$maximum" -nodefaults -display none \
    -accel kvm -m "$(value memory)" "${words[@]}" || die "start failed: QEMU exited with code $?"
  hook post-start || true
}

# What becomes of QEMU and its files.
end() {
  local process
  process=$(pid)
  kill "$process"
  tail --pid="$process" --follow /dev/null
  rm -f "$run/$vm."*
}

case "$verb" in
  create)
    [ ! -e "$file" ] || die "unable to create VM $vm - VM $vm already exists on node '$(uname -n)'"
    : >"$file"
    set_options --memory 512 "$@"
    ;;
  set) require_configuration && set_options "$@" ;;
  config) require_configuration && cat "$file" ;;
  status) if runs; then echo 'status: running'; else echo 'status: stopped'; fi ;;
  start)
    require_configuration
    ! runs || die "VM $vm already running"
    start
    ;;
  stop)
    require_configuration
    runs || exit 0
    hook pre-stop || true
    end
    hook post-stop || true
    ;;
  cleanup) # as qmeventd calls it when QEMU has ended by itself
    require_configuration
    ! runs || die "vm still running"
    rm -f "$run/$vm."*
    hook post-stop || true
    ;;
  migrate) # this node's part: the other one has the VM, and then the configuration
    require_configuration
    mkdir -p "/etc/pve/nodes/$1/qemu-server"
    mv "$file" "/etc/pve/nodes/$1/qemu-server/$vm.conf"
    ! runs || end
    ;;
  destroy)
    require_configuration
    ! runs || die "VM $vm is running - destroy failed"
    rm "$file"
    ;;
  *) die "unknown command '$verb'" ;;
esac
