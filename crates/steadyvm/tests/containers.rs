//! A program without a VM under `steadyvm watch`, on this machine's kernel: its threads of a name have a budget as soon as they
//! begin, in the cgroup that the file names and nowhere else. Needs root.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

#[path = "support/cgroups.rs"]
mod cgroups;

use std::ffi::OsStr;

/// Begins a thread called `cycle0` for each SIGUSR1, beside one called `log`.
const PROGRAM: &str = r"
import signal, threading
def run(name):
    with open('/proc/thread-self/comm', 'w') as comm:
        comm.write(name)
    threading.Event().wait()
def begin(name):
    threading.Thread(target=run, args=[name], daemon=True).start()
begin('log')
signal.signal(signal.SIGUSR1, lambda *_: begin('cycle0'))
print('ready', flush=True)
while True:
    signal.pause()
";

/// `$G` is the pod's cgroup. `start` begins the program in the cgroup `$1`. `of` prints the policies of a process's threads whose
/// names begin so.
const PLACE: &str = r#"
mkdir -p "$G/container" "$G-other"
service= watch= other=
end() {
  for process in $service $watch $other; do kill $process || :; wait $process || :; done
  rmdir "$G/container" "$G" "$G-other"
}
trap end EXIT
mkfifo /run/said
start() {
  (echo $BASHPID > "$1/cgroup.procs"; exec python3 -c "$PROGRAM" > /run/said) & service=$!
  read -r ready < /run/said
}
of() { for task in /proc/$1/task/*; do if grep -q "^$2" $task/comm; then chrt -p ${task##*/} | head -n 2 | sed 's/.*: //'; fi; done; }
is_granted() { of $service cycle | grep -q SCHED_DEADLINE; }
printf '[host]\ncpus = "0"\nscheduler = "pedf"\nenforce = "deadline"\n[[vm]]\nname = "pod"\ncgroup = "%s"\nthreads = "cycle*"\n
class = "rt"\ninterface = "mpr"\nperiod = "100ms"\nbudget = "5ms"\nvcpus = 1\n' "$CGROUP" > /run/site.toml
"#;

#[test]
fn threads_of_a_container_have_their_budget_as_soon_as_they_begin_and_are_undone() {
    let cgroup = format!("/steadyvm-test-pod-{}", std::process::id());
    let group = cgroups::root().join(cgroup.trim_start_matches('/'));
    // The looks without an event are 30 s apart: a thread that is not heard of takes longer.
    let script = format!(
        r#"{PLACE}
        start "$G-other"; other=$service; kill -USR1 $other
        start "$G/container"
        "$S" watch /run/site.toml 2> /run/watched & watch=$!
        for round in 1 2 3; do
          begun=$EPOCHREALTIME
          kill -USR1 $service
          until is_granted; do :; done
          echo "$begun $EPOCHREALTIME" | awk '{{ print ($2 - $1 < 20 ? "heard" : "too late") }}'
          [ $round = 3 ] || {{ kill $service; wait $service || :; start "$G/container"; }}
        done
        # One has the budget of the plan. A second of the name has none, nor has any other, here or elsewhere.
        kill -USR1 $service
        until [ "$(of $service cycle | grep -c SCHED_)" = 2 ]; do :; done
        "$S" apply /run/site.toml > /run/applied 2>&1 || :
        of $service cycle | grep -c SCHED_DEADLINE
        {{ of $service log; of $service python; of $other cycle; }} | grep -c SCHED_OTHER
        "$S" status /run/site.toml | grep -c 'policy of thread .*cycle0): deadline'
        kill $watch; wait $watch || :; watch=
        "$S" undo > /run/undone
        of $service cycle | grep -c SCHED_OTHER"#
    );
    let variables: &[(&str, &OsStr)] = &[
        ("G", group.as_ref()),
        ("CGROUP", cgroup.as_ref()),
        ("PROGRAM", PROGRAM.as_ref()),
    ];
    let (said, error) = cgroups::printed(&script, variables);
    assert_eq!(said, "heard\nheard\nheard\n1\n3\n1\n2\n", "{error}");
    assert!(!group.exists());
}
