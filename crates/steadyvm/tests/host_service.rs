//! A service of the host under `steadyvm watch`, on this machine's kernel: a cgroup where systemd has its units, and a process
//! that is moved there as systemd does it. Needs root.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

#[path = "support/cgroups.rs"]
mod cgroups;

use std::ffi::OsStr;

/// `$G` is the unit's cgroup. `start` begins its program, as systemd does: a process enters
/// the cgroup, then the program begins. Bash's `wait` returns when it has ended.
const PLACE: &str = r#"
mkdir -p "$G"
service= watch=
end() { for process in $service $watch; do kill $process || :; wait $process || :; done; rmdir "$G"; }
trap end EXIT
start() { (echo $BASHPID > "$G/cgroup.procs"; exec tail -f /dev/null) & service=$!; }
stop() { kill $service; wait $service || :; service=; }
rank() { chrt -p $service | sed -n 's/.*priority: //p'; }
await() { until [ "$(rank)" = "$1" ]; do :; done; }
printf '[[host_service]]\nunit = "%s"\nrank = 7\n' "$UNIT" > /run/site.toml
"#;

#[test]
fn a_service_that_starts_again_is_heard_of_and_ranked_at_once_and_undone() {
    let unit = format!("steadyvm-test-{}.service", std::process::id());
    let group = cgroups::root().join("system.slice").join(&unit);
    // The looks without an event are 30 s apart: a start that is not heard of takes longer.
    let script = format!(
        r#"{PLACE}
        start; rank
        "$S" watch /run/site.toml 2> /run/watched & watch=$!
        await 7; echo ranked
        for round in 1 2 3; do
          stop; start; begun=$EPOCHREALTIME
          await 7
          echo "$begun $EPOCHREALTIME" | awk '{{ print ($2 - $1 < 20 ? "heard" : "too late") }}'
        done
        "$S" status /run/site.toml | grep -c "policy of thread $service (tail)"
        kill $watch; wait $watch || :; watch=
        "$S" undo > /run/undone; rank"#
    );
    let variables: &[(&str, &OsStr)] = &[("G", group.as_ref()), ("UNIT", unit.as_ref())];
    let (said, error) = cgroups::printed(&script, variables);
    assert_eq!(said, "0\nranked\nheard\nheard\nheard\n1\n0\n", "{error}");
    assert!(!group.exists());
}
