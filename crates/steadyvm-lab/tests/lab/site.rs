//! A host as one file describes it, in the emulated host: applied, watched, restored.

use std::time::Duration;

use crate::support::files::ranks;
use crate::support::profile::{all_hold, inside, shown, undo, write};
use crate::support::shared;
use serde_json::Value;
use steadyvm_lab::agent::Process;
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::{HostKernel, guest};
use steadyvm_lab::progress::Silent;

const PATIENCE: Duration = Duration::from_secs(60);
const JOURNAL: &str = "/run/steadyvm/host/journal.jsonl";
/// Sooner than a watch looks without an event.
const BY_EVENT: Duration = Duration::from_secs(20);
/// Where the lab lets the card's interrupts go.
const INTERRUPTS_CPU: usize = 0;

fn watch(host: &EmulatedHost) -> Process {
    let watch = ["sh", "-c", "exec steadyvm watch /run/steadyvm.toml 2>&1"];
    host.connection().spawn(&watch).unwrap()
}

/// What `status` says, and its exit code.
fn status(host: &EmulatedHost) -> (Value, i64) {
    let text = inside(
        host,
        "code=0; steadyvm status --json /run/steadyvm.toml > /run/status.json || code=$?; \
         printf '{\"code\": %s, \"status\": ' $code; cat /run/status.json; echo '}'",
    );
    let mut both: Value = serde_json::from_str(&text).unwrap();
    (both["status"].take(), both["code"].as_i64().unwrap())
}

/// Waits until all that the file says is in force.
fn await_in_force(host: &EmulatedHost) {
    inside(
        host,
        "timeout 60 sh -c 'until steadyvm status /run/steadyvm.toml > /run/status; do :; done' \
         || { cat /run/status >&2; exit 1; }",
    );
}

/// The number of the card's interrupt thread of this action.
fn interrupt_thread(host: &EmulatedHost, action: &str) -> String {
    let listed = inside(host, &format!("ps -eLo lwp=,comm= | grep {action}"));
    listed.split_whitespace().next().unwrap().to_owned()
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_watch_keeps_a_file_in_force_while_vms_and_cards_come_and_go() {
    let host = shared::host(HostKernel::V6_12Rt);
    write(&host, "/run/steadyvm.toml", &ranks("rt"));
    inside(&host, "steadyvm status --snapshot > /run/before.json");
    assert_eq!(status(&host).1, 1, "nothing is in force yet");

    // A VM that starts while the watch runs.
    let mut watching = watch(&host);
    watching.wait_for_line("irq/", PATIENCE).unwrap();
    let first = host
        .start_guest(&guest("rt", 1, 2), &[RT], &Silent)
        .unwrap();
    watching.wait_for_line("CPU 1/KVM", PATIENCE).unwrap();
    let (said, code) = status(&host);
    assert_eq!(code, 0, "{said}");
    // What is in force of the VM itself: VCPU 0 is the guest's housekeeping.
    let running = &said["running"]["rt"];
    assert!(running["process"].is_u64(), "{said}");
    let in_force = running["in_force"].as_array().unwrap().iter();
    let in_force: Vec<(&str, &str)> = in_force
        .map(|one| {
            (
                one["what"].as_str().unwrap(),
                one["value"].as_str().unwrap(),
            )
        })
        .collect();
    assert!(in_force.contains(&("VCPU 1", "FIFO 70")), "{said}");
    assert!(in_force.contains(&("vhost worker", "FIFO 75")), "{said}");
    assert!(in_force.iter().all(|(what, _)| *what != "VCPU 0"), "{said}");

    // A card whose driver asks for its interrupts again has new interrupt threads.
    inside(&host, "ip link set rt down && ip link set rt up");
    let thread = interrupt_thread(&host, "rt-rx-0");
    watching
        .wait_for_line(&format!("thread {thread} "), PATIENCE)
        .unwrap();

    // So has one that gets another number of channels, and one more for each.
    for (channels, action) in [("2", "rt-rx-1"), ("1", "rt-rx-0")] {
        inside(&host, &format!("ethtool -L rt combined {channels}"));
        let thread = interrupt_thread(&host, action);
        watching
            .wait_for_line(&format!("thread {thread} "), PATIENCE)
            .unwrap();
        await_in_force(&host);
    }
    // The kernel gives new interrupts to all CPUs; the lab had not.
    host.interrupts_to_cpu("rt", INTERRUPTS_CPU).unwrap();

    // A CPU goes and comes back. Of a rank that is lost no event tells: it is back sooner than without the CPU's.
    for online in ["0", "1"] {
        inside(
            &host,
            &format!(
                "chrt --other -p 0 $(ps -eLo lwp=,comm= | sed -n 's,CPU 1/KVM,,p'); \
                 echo {online} > /sys/devices/system/cpu/cpu1/online"
            ),
        );
        watching.wait_for_line("CPU 1/KVM", BY_EVENT).unwrap();
        await_in_force(&host);
    }

    // Killed, it leaves all in force; another VM that starts meanwhile is found by the next watch.
    watching.signal(libc::SIGKILL).unwrap();
    watching.finish(PATIENCE).unwrap();
    drop(first);
    inside(&host, "pkill -9 qemu; pidwait qemu || true");
    inside(
        &host,
        "for tap in /sys/class/net/*/tun_flags; do ip link delete $(basename ${tap%/*}); done",
    );
    let second = host
        .start_guest(&guest("rt", 1, 2), &[RT], &Silent)
        .unwrap();
    let (said, code) = status(&host);
    assert_eq!(code, 1, "{said}");
    assert!(!said["missing"].as_array().unwrap().is_empty(), "{said}");
    let mut watching = watch(&host);
    watching.wait_for_line("CPU 1/KVM", PATIENCE).unwrap();

    // Told to end, it leaves all in force.
    watching.signal(libc::SIGTERM).unwrap();
    let ended = watching.finish(PATIENCE).unwrap();
    assert_eq!(ended.status.shell_code(), 0, "{}", ended.text());
    let (said, code) = status(&host);
    assert_eq!(code, 0, "{said}");
    assert!(all_hold(&shown(&host)));
    let journal = inside(&host, &format!("cat {JOURNAL}"));
    undo(&host);
    drop(second);
    drop(host);
    require_all_after_a_reboot(&journal);
}

/// The host boots into another kernel, and the journal of before is still there.
fn require_all_after_a_reboot(journal: &str) {
    let host = shared::host(HostKernel::V7_3Rt);
    write(&host, "/run/steadyvm.toml", &ranks("rt"));
    inside(&host, "steadyvm status --snapshot > /run/before.json");
    inside(&host, "install -d -m 700 /run/steadyvm /run/steadyvm/host");
    write(&host, JOURNAL, journal);
    let (said, code) = status(&host);
    assert_eq!(code, 1, "{said}");
    assert_eq!(said["state"], "before-reboot", "{said}");
    let mut watching = watch(&host);
    watching.wait_for_line("irq/", PATIENCE).unwrap();
    let _guest = host
        .start_guest(&guest("rt", 1, 2), &[RT], &Silent)
        .unwrap();
    watching.wait_for_line("CPU 1/KVM", PATIENCE).unwrap();
    await_in_force(&host);
    watching.signal(libc::SIGTERM).unwrap();
    watching.finish(PATIENCE).unwrap();
    undo(&host);
}
