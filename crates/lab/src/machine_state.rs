//! What machines still tell of why one of them did not do what it was asked for.

use crate::agent::Connection;
use std::fmt::Write as _;
use std::time::Duration;

/// A machine that is alive answers within this time, on a loaded machine too.
const PATIENCE: Duration = Duration::from_secs(20);

/// Twice, a second apart: what has counted on meanwhile is alive, what has not is not. Then what waits for
/// what, and what the kernel said last.
const SCRIPT: &str = r#"
count() {
    cat /proc/uptime
    head -n1 /proc/stat
    grep -E '^ *(CPU|LOC|RES|0:|[0-9]+:.*(rt|bulk|virtio))' /proc/interrupts
}
count
sleep 1
count
ps -eLo pid,tid,comm,stat,policy,rtprio,psr,time,wchan --sort -time | head -n 30
ps -eo pid=,stat= | while read -r pid state; do
    case $state in [DR]*) echo "$pid: $(tr '\0' ' ' < /proc/$pid/cmdline)"; cat /proc/$pid/stack;; esac
done
for monitor in /run/steadyvm/guests/*.pid; do
    [ -e "$monitor" ] || continue
    for task in /proc/$(cat $monitor)/task/*; do
        echo "$monitor $(cat $task/comm): $(cut -d ' ' -f 1 $task/schedstat) ns"
        cat $task/stack
    done
done
grep -E . /sys/kernel/debug/kvm/*/vcpu*/* 2>/dev/null
# A monitor says here why KVM ended its guest.
tail -n 60 /run/steadyvm/guests/*.log
rm -f /run/steadyvm/guests/*.processors
# The brackets keep this script from finding itself.
if pkill -USR1 -f ' [c]arry '; then
    for monitor in /run/steadyvm/guests/*.pid; do
        told=${monitor%.pid}.processors
        timeout 5 sh -c "until [ -s $told ]; do sleep 0.1; done" && cat $told
    done
fi
cat /sys/devices/system/clocksource/clocksource0/current_clocksource
# A timer whose time has come and that its CPU's clock event does not know of is a fault of the kernel's.
cat /proc/timer_list
dmesg
"#;

/// The state of each of the machines, the one after the other.
pub(crate) fn of<'c>(machines: impl IntoIterator<Item = (&'c str, &'c Connection)>) -> String {
    let mut told = String::new();
    for (name, machine) in machines {
        let state = state(machine).unwrap_or_else(|error| error.to_string());
        let _ = writeln!(told, "{name}:\n{state}");
    }
    told
}

fn state(machine: &Connection) -> crate::Result<String> {
    machine.require_alive(PATIENCE)?;
    machine.text(&["sh", "-c", SCRIPT])
}
