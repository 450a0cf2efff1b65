//! What else this machine did while a comparison measured: the first thing to look at when two runs
//! differ.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::{SysconfVar, sysconf};
use serde::{Deserialize, Serialize};
use std::fs;
use std::time::Duration;
use steadyvm_lab::{At, Error, Result};

/// Shares of the CPU time of all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// Used by anything but this program and its children.
    pub others: f64,
    /// Taken by the machine's own hypervisor, if it is a virtual machine.
    pub stolen: f64,
    /// How often nothing ran at all.
    pub standstills: Standstills,
}

/// Times in which the whole machine stood still.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Standstills {
    /// Phases that were measured again for it.
    pub phases_measured_again: u64,
    /// Phases that were kept in spite of it, because too many had been measured again.
    pub phases_kept: u64,
    /// The longest, in milliseconds.
    pub longest_ms: f64,
}

impl Standstills {
    /// Counts a phase in which the machine stood still for so long.
    pub fn add(&mut self, longest: Duration, measured_again: bool) {
        self.longest_ms = self.longest_ms.max(longest.as_secs_f64() * 1e3);
        if measured_again {
            self.phases_measured_again += 1;
        } else {
            self.phases_kept += 1;
        }
    }

    /// A sentence for who reads the figures, if there were any.
    fn note(&self) -> Option<String> {
        let Self {
            phases_measured_again: again,
            phases_kept: kept,
            longest_ms,
        } = self;
        (again + kept > 0).then(|| {
            format!(
                "this machine stood still in {} phases, for {longest_ms:.1} ms at most: {again} of them \
                 were measured again, {kept} were kept",
                again + kept
            )
        })
    }
}

/// Above these shares the reader is told; a machine at rest is below.
const MANY_OTHERS: f64 = 0.03;
const MUCH_STOLEN: f64 = 0.005;

impl Disturbance {
    /// Sentences for who reads the figures, if there is something to say.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        [self.cpu_note(), self.standstills.note()]
            .into_iter()
            .flatten()
    }

    fn cpu_note(&self) -> Option<String> {
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

/// Counters of CPU time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuUse {
    busy: Duration,
    idle: Duration,
    stolen: Duration,
    own: Duration,
}

impl CpuUse {
    /// The counters now; `emulators` are the children that run.
    pub fn now(emulators: impl Iterator<Item = u32>) -> Result<Self> {
        let ticks_per_s = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100) as f64;
        let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 / ticks_per_s);
        let text = fs::read_to_string("/proc/stat").at("read", "/proc/stat")?;
        let [busy, idle, stolen] = machine_ticks(&text)
            .ok_or_else(|| Error::machine("read /proc/stat", "its first line is not known"))?
            .map(time);
        let mut own = Duration::ZERO;
        for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
            let usage = getrusage(who).doing("read this program's CPU time")?;
            let used = usage.user_time() + usage.system_time();
            own += Duration::from_micros(used.num_microseconds().unsigned_abs());
        }
        for process in emulators {
            let path = format!("/proc/{process}/stat");
            let text = fs::read_to_string(&path).at("read", &path)?;
            own += time(process_ticks(&text).unwrap_or(0));
        }
        Ok(Self {
            busy,
            idle,
            stolen,
            own,
        })
    }

    /// What happened since `earlier`.
    pub fn since(&self, earlier: &Self) -> Disturbance {
        let passed = |now: Duration, then: Duration| now.as_secs_f64() - then.as_secs_f64();
        let busy = passed(self.busy, earlier.busy);
        let stolen = passed(self.stolen, earlier.stolen);
        let all = busy + stolen + passed(self.idle, earlier.idle);
        let share = |time: f64| {
            if all > 0.0 {
                (time / all).clamp(0.0, 1.0)
            } else {
                0.0
            }
        };
        Disturbance {
            others: share(busy - passed(self.own, earlier.own)),
            stolen: share(stolen),
            standstills: Standstills::default(),
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
        let counters = |busy, idle, stolen, own| CpuUse {
            busy: Duration::from_secs(busy),
            idle: Duration::from_secs(idle),
            stolen: Duration::from_secs(stolen),
            own: Duration::from_secs(own),
        };
        let earlier = counters(100, 50, 1, 10);
        let later = counters(170, 78, 3, 60);
        let found = later.since(&earlier);
        assert_eq!((found.others, found.stolen), (0.2, 0.02));
        let note = found.notes().next().unwrap();
        assert!(note.contains("20.0 %") && note.contains("2.0 %"), "{note}");
        let quiet = earlier.since(&earlier);
        assert_eq!(quiet.notes().next(), None);
    }

    #[test]
    fn standstills_are_told() {
        let mut standstills = Standstills::default();
        assert_eq!(standstills.note(), None);
        standstills.add(Duration::from_millis(33), true);
        standstills.add(Duration::from_millis(12), false);
        let note = standstills.note().unwrap();
        assert!(
            note.contains("2 phases, for 33.0 ms at most: 1 of them"),
            "{note}"
        );
    }

    #[test]
    fn this_machine_is_read() {
        let before = CpuUse::now(std::iter::empty()).unwrap();
        let after = CpuUse::now([std::process::id()].into_iter()).unwrap();
        assert!(after.busy >= before.busy && after.own >= before.own);
    }
}
