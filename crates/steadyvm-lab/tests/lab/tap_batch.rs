//! How many packets a VM's tap hands to the host in one section: set while the VM runs, undone after a crash
//! too, and counted.

use crate::support::profile::{all_hold, inside, laboratory, shown, undo, write};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use steadyvm_lab::agent::{Connection, Process};
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::{HostKernel, guest};
use steadyvm_lab::progress::Silent;

const PATIENCE: Duration = Duration::from_secs(60);
const PORT: u16 = 7700;
/// The longest section of the plain path, in packets: `VHOST_NET_BATCH`.
const LONGEST: usize = 64;
/// So many calls and packets are looked at.
const EVENTS: u32 = 4000;
/// A call of `tun_sendmsg()`, which has no more than one section with softirqs off (`tun_rx_batched()`,
/// or the loop over `tun_xdp_one()`; drivers/net/tun.c of 6.12), and each packet that one hands on.
const PROBES: &str = "mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing\n\
     cd /sys/kernel/tracing\n\
     echo 4000 > buffer_size_kb\n\
     echo 'p:taps/call tun_sendmsg' > kprobe_events\n\
     echo 'name == \"tap-bulk\"' > events/net/netif_receive_skb/filter\n";
const PROBE_EVENTS: &str = "events/taps/enable events/net/netif_receive_skb/enable";

const BATCH: &str = r#"
[net]
levels_from = 70
[class.bulk]
vhost = 40
[[vm]]
name = "bulk"
class = "bulk"
"#;

/// What `status` finds in force for the setting whose name begins so; none if it is not recorded.
fn now(host: &EmulatedHost, subject: &str) -> Option<String> {
    let shown = shown(host);
    let settings = shown["settings"].as_array().unwrap();
    let is_it = |setting: &&Value| setting["subject"].as_str().unwrap().starts_with(subject);
    let setting = settings.iter().find(is_it)?;
    Some(setting["now"].as_str().unwrap().to_owned())
}

/// What ethtool says of a device's `rx-frames`.
fn rx_frames(host: &EmulatedHost, device: &str) -> String {
    let coalescing = inside(host, &format!("ethtool -c {device}"));
    let line = coalescing
        .lines()
        .find_map(|line| line.strip_prefix("rx-frames:"));
    line.unwrap_or_else(|| panic!("{coalescing}"))
        .trim()
        .to_owned()
}

/// The packets that the tap's sections have while a guest sends as fast as it can: how many sections have so
/// many.
fn sections(host: &EmulatedHost, flood: &mut Process) -> BTreeMap<usize, usize> {
    let enable = |on: u8| {
        let words =
            format!("cd /sys/kernel/tracing; for it in {PROBE_EVENTS}; do echo {on} > $it; done");
        inside(host, &words);
    };
    ask(flood, "start");
    enable(1);
    // Ends when there have been so many.
    let trace = inside(
        host,
        &format!("timeout 60 head -n {EVENTS} /sys/kernel/tracing/trace_pipe"),
    );
    enable(0);
    ask(flood, "stop");
    inside(host, "echo > /sys/kernel/tracing/trace");
    assert!(!trace.contains("LOST"), "{trace}");
    // What comes before the first call and after the last one may be a part of a section.
    let calls: Vec<&str> = trace.split(": call: ").collect();
    let mut sections = BTreeMap::new();
    for call in &calls[1..calls.len() - 1] {
        let packets = call.matches("netif_receive_skb: ").count();
        if packets > 0 {
            *sections.entry(packets).or_default() += 1;
        }
    }
    sections
}

/// Starts a load of the lab's experiments.
fn load(place: &Connection, words: &[&str]) -> Process {
    let mut process = place
        .spawn(&[&["steadyvm-lab", "load"][..], words].concat())
        .unwrap();
    process.wait_for_line("ready", PATIENCE).unwrap();
    process
}

fn ask(flood: &mut Process, word: &str) {
    flood.input(format!("{word}\n").as_bytes()).unwrap();
    flood.wait_for_line("", PATIENCE).unwrap();
}

/// The longest section.
fn longest(sections: &BTreeMap<usize, usize>) -> usize {
    *sections.last_key_value().unwrap().0
}

#[test]
#[ignore = "needs the lab: make patched-tests"]
fn the_batch_of_a_running_vms_tap_is_set_counted_and_undone_after_a_crash_too() {
    const LIMIT: Option<&str> = Some("16777216 bytes");
    let logs = tempfile::tempdir().unwrap();
    let laboratory = laboratory(logs.path(), HostKernel::V6_12RtPatched);
    let host = EmulatedHost::boot(
        &laboratory
            .host("batch", HostKernel::V6_12RtPatched)
            .unwrap(),
    )
    .unwrap();
    let machine = guest("bulk", 1, 2);
    let tap = &machine.cards[0].tap;
    let sender = host.start_guest(&machine, &[RT], &Silent).unwrap();
    sender.set_network_up(RT.address(10)).unwrap();
    let anywhere = format!("0.0.0.0:{PORT}");
    let _sink = load(host.connection(), &["sink", &anywhere]);
    let receiver = format!("{}:{PORT}", RT.host());
    let mut flood = load(sender.connection(), &["flood", &receiver, "64"]);
    inside(&host, PROBES);
    inside(&host, "steadyvm status --snapshot > /run/before.json");
    let before: Value = serde_json::from_str(&inside(&host, "cat /run/before.json")).unwrap();
    let settings = &before["settings"];
    assert_eq!(settings["tap-send-buffer"][tap], "{2147483647} bytes");
    assert_eq!(settings["rx-frames"][tap], "0");
    let plain = sections(&host, &mut flood);
    println!("packets in a section, sections: plain {plain:?}");
    assert!((9..=LONGEST).contains(&longest(&plain)), "{plain:?}");

    // Below the levels and nothing said: 1.
    write(&host, "/run/steadyvm.toml", BATCH);
    inside(&host, "steadyvm apply --strict /run/steadyvm.toml");
    assert!(all_hold(&shown(&host)));
    assert_eq!(now(&host, "send buffer").as_deref(), LIMIT);
    assert_eq!(rx_frames(&host, tap), "0");
    let levels_from = inside(&host, "cat /proc/sys/net/core/rtnet_prio");
    assert_eq!(levels_from.trim(), "70");
    let one = sections(&host, &mut flood);
    println!("batch 1 {one:?}");
    assert_eq!(longest(&one), 1, "{one:?}");

    // Its class says 8.
    let eight = BATCH.replace("vhost = 40", "vhost = 40\ntap_batch = 8");
    write(&host, "/run/steadyvm.toml", &eight);
    inside(&host, "steadyvm apply --strict /run/steadyvm.toml");
    assert!(all_hold(&shown(&host)));
    assert_eq!(now(&host, "send buffer").as_deref(), LIMIT);
    assert_eq!(rx_frames(&host, tap), "7");
    let eight = sections(&host, &mut flood);
    println!("batch 8 {eight:?}");
    assert_eq!(longest(&eight), 8, "{eight:?}");
    // Fewer where the guest has no more yet, the more often the slower the machine: longer ones are rarer then. But
    // those that the limit ends are all of 8, however long they would have been: 8 stands out of its neighbours.
    let neighbours: usize = eight.range(6..8).map(|(_, count)| count).sum();
    assert!(eight[&8] > neighbours, "{eight:?}");
    undo(&host);
    assert_eq!(rx_frames(&host, tap), "0");

    // Killed when it has set the send buffer and is about to read it back.
    let killed = inside(
        &host,
        "strace -f -o /dev/null -e inject=pidfd_getfd:signal=KILL:when=5 \
         steadyvm apply --strict /run/steadyvm.toml || echo $?",
    );
    assert!(killed.trim().ends_with("137"), "{killed}");
    assert_eq!(shown(&host)["state"], "incomplete");
    assert_eq!(now(&host, "send buffer").as_deref(), LIMIT);
    undo(&host);
}
