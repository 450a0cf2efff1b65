//! What tests of the lab have in common.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// The network namespaces, devices and lab processes of this machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Footprint {
    pub named_namespaces: String,
    /// Of processes; one that only a descriptor holds would be in the process that has it.
    pub namespaces: BTreeSet<PathBuf>,
    pub links: Vec<String>,
    pub processes: Vec<String>,
}

impl Footprint {
    pub fn now() -> Self {
        let text = |words: &[&str]| {
            let done = Command::new(words[0]).args(&words[1..]).output().unwrap();
            String::from_utf8(done.stdout).unwrap()
        };
        let lab_process = |line: &&str| {
            ["qemu-system", "iperf3"]
                .iter()
                .any(|name| line.contains(name))
        };
        Self {
            named_namespaces: text(&["ip", "netns"]),
            namespaces: std::fs::read_dir("/proc")
                .unwrap()
                .filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("ns/net")).ok())
                .collect(),
            links: text(&["ip", "-brief", "link"])
                .lines()
                .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
                .collect(),
            processes: text(&["ps", "-eo", "pid=,comm="])
                .lines()
                .filter(lab_process)
                .map(str::to_owned)
                .collect(),
        }
    }
}

/// Waits until the children of a dead process are gone too.
pub fn wait_until_gone(before: &Footprint) {
    // They were sent SIGKILL before their parent could be collected; what is left to them is
    // to die, and the kernel tells of that only their own parent.
    while &Footprint::now() != before {
        std::thread::yield_now();
    }
}
