//! What else this machine did while a comparison measured: the first thing to look at when two runs
//! differ.

use crate::error::{At, Error, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::{SysconfVar, sysconf};
use serde::{Deserialize, Serialize};
use std::fs;

/// Shares of the CPU time of all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// Used by anything but this program and its children.
    pub others: f64,
    /// Taken by the machine's own hypervisor, if it is a virtual machine.
    pub stolen: f64,
}

/// Above these shares the reader is told; a machine at rest is below.
const MANY_OTHERS: f64 = 0.03;
const MUCH_STOLEN: f64 = 0.005;

impl Disturbance {
    /// A sentence for who reads the figures, if there is something to say.
    pub fn note(&self) -> Option<String> {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let said = match (self.others > MANY_OTHERS, self.stolen > MUCH_STOLEN) {
            (false, false) => return None,
            (true, false) => format!("other processes used {}", percent(self.others)),
            (false, true) => format!("the machine's hypervisor took {}", percent(self.stolen)),
            (true, true) => format!(
                "other processes used {} and the machine's hypervisor took {}",
                percent(self.others),
                percent(self.stolen)
            ),
        };
        Some(format!(
            "{said} of this machine's CPU time during the rounds: figures vary more for it"
        ))
    }
}

/// Counters of CPU time, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuUse {
    busy_s: f64,
    idle_s: f64,
    stolen_s: f64,
    own_s: f64,
}

impl CpuUse {
    /// The counters now; `emulators` are the children that run.
    pub fn now(emulators: impl Iterator<Item = u32>) -> Result<Self> {
        let ticks_per_s = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100) as f64;
        let text = fs::read_to_string("/proc/stat").at("read", "/proc/stat")?;
        let ticks = machine_ticks(&text)
            .ok_or_else(|| Error::machine("read /proc/stat", "its first line is not known"))?;
        let mut own_s = 0.0;
        for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
            let usage = getrusage(who).doing("read this program's CPU time")?;
            let time = usage.user_time() + usage.system_time();
            own_s += time.num_microseconds() as f64 / 1e6;
        }
        for process in emulators {
            let path = format!("/proc/{process}/stat");
            let text = fs::read_to_string(&path).at("read", &path)?;
            own_s += process_ticks(&text).unwrap_or(0) as f64 / ticks_per_s;
        }
        let [busy_s, idle_s, stolen_s] = ticks.map(|ticks| ticks as f64 / ticks_per_s);
        Ok(Self {
            busy_s,
            idle_s,
            stolen_s,
            own_s,
        })
    }

    /// What happened since `earlier`.
    pub fn since(&self, earlier: &Self) -> Disturbance {
        let busy = self.busy_s - earlier.busy_s;
        let stolen = self.stolen_s - earlier.stolen_s;
        let all = busy + stolen + self.idle_s - earlier.idle_s;
        let share = |time: f64| {
            if all > 0.0 {
                (time / all).clamp(0.0, 1.0)
            } else {
                0.0
            }
        };
        Disturbance {
            others: share(busy - (self.own_s - earlier.own_s)),
            stolen: share(stolen),
        }
    }
}

/// Busy, idle and stolen ticks of "cpu user nice system idle iowait irq softirq steal …".
fn machine_ticks(stat: &str) -> Option<[u64; 3]> {
    let mut words = stat.lines().next()?.split_whitespace();
    if words.next() != Some("cpu") {
        return None;
    }
    let ticks: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [user, nice, system, idle, iowait, irq, softirq, stolen, ..] = ticks[..] else {
        return None;
    };
    Some([user + nice + system + irq + softirq, idle + iowait, stolen])
}

/// User and system ticks of a process: fields 14 and 15, after a name that may hold anything.
fn process_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read() {
        let stat = "cpu  10 1 20 300 5 2 3 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(machine_ticks(stat), Some([36, 305, 7]));
        assert_eq!(machine_ticks("intr 1 2 3"), None);
        assert_eq!(machine_ticks("cpu 1 2 3"), None);
        let process = "77 (a ) name) S 1 2 3 4 5 6 7 8 9 10 111 222 0 0";
        assert_eq!(process_ticks(process), Some(333));
        assert_eq!(process_ticks("77"), None);
    }

    #[test]
    fn shares_are_of_all_cpus_time() {
        let earlier = CpuUse {
            busy_s: 100.0,
            idle_s: 50.0,
            stolen_s: 1.0,
            own_s: 10.0,
        };
        let later = CpuUse {
            busy_s: 170.0,
            idle_s: 78.0,
            stolen_s: 3.0,
            own_s: 60.0,
        };
        let found = later.since(&earlier);
        assert_eq!((found.others, found.stolen), (0.2, 0.02));
        let note = found.note().unwrap();
        assert!(note.contains("20.0 %") && note.contains("2.0 %"), "{note}");
        let quiet = earlier.since(&earlier);
        assert_eq!(quiet.note(), None);
    }

    #[test]
    fn this_machine_is_read() {
        let before = CpuUse::now(std::iter::empty()).unwrap();
        let after = CpuUse::now([std::process::id()].into_iter()).unwrap();
        assert!(after.busy_s >= before.busy_s && after.own_s >= before.own_s);
    }
}
