//! What each VM receives by a card's XDP program, and the CPU time that it may cost.

use std::io;
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags};
use serde::{Deserialize, Serialize};

use crate::{Address, Cannot, Result, broken, key_of, open_map};

pub(crate) const RECEIVED: &str = "received_of";
pub(crate) const BUDGETS: &str = "budgets";

/// CPU time that a VM's packets may cost the host in each period. The program takes each packet's cost as equal, and drops
/// those that are over the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_field_names)] // the unit
pub struct Budget {
    /// CPU time in each period.
    pub runtime_ns: u64,
    /// The period: packets of one whole budget may come at once.
    pub period_ns: u64,
    /// What a packet costs.
    pub packet_ns: u32,
}

/// The longest period: products of two times stay below 2^64.
const MOST_PERIOD_NS: u64 = u32::MAX as u64;

impl Budget {
    /// What is wrong with it, in words.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn check(&self) -> std::result::Result<(), String> {
        let Self {
            runtime_ns,
            period_ns,
            packet_ns,
        } = *self;
        if packet_ns == 0 || u64::from(packet_ns) > runtime_ns {
            return Err(format!(
                "a packet that costs {packet_ns} ns is not within 1 ns and the budget, {runtime_ns} ns"
            ));
        }
        if runtime_ns > period_ns || period_ns > MOST_PERIOD_NS {
            return Err(format!(
                "a budget of {runtime_ns} ns in {period_ns} ns is not within its period, which is {MOST_PERIOD_NS} ns at most"
            ));
        }
        Ok(())
    }

    /// Time from one packet to the next at the budget's rate, rounded up: the rate is never above the budget.
    fn interval_ns(&self) -> u64 {
        (u64::from(self.packet_ns) * self.period_ns).div_ceil(self.runtime_ns)
    }

    /// `struct budget` of bpf/redirect.bpf.c.
    fn entry(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        // The lock, open, comes first.
        bytes[4..8].copy_from_slice(&self.packet_ns.to_ne_bytes());
        let times = [self.runtime_ns, self.period_ns, self.interval_ns()];
        for (place, time) in bytes[8..].chunks_exact_mut(8).zip(times) {
            place.copy_from_slice(&time.to_ne_bytes());
        }
        bytes
    }

    fn of_entry(bytes: &[u8]) -> Option<Self> {
        let time = |from: usize| {
            let bytes = bytes.get(from..)?.first_chunk()?;
            Some(u64::from_ne_bytes(*bytes))
        };
        Some(Self {
            packet_ns: u32::from_ne_bytes(*bytes.get(4..)?.first_chunk()?),
            runtime_ns: time(8)?,
            period_ns: time(16)?,
        })
    }
}

/// A lock, a cost, and four times.
const ENTRY_BYTES: usize = 8 + 4 * 8;

/// Packets to a VM since it is served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// All of them.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these packets: dropped, since they were over the VM's budget.
    pub discarded: u64,
}

impl Received {
    fn of_cpu(bytes: &[u8]) -> Option<Self> {
        let number = |from: usize| {
            let bytes = bytes.get(from..)?.first_chunk()?;
            Some(u64::from_ne_bytes(*bytes))
        };
        Some(Self {
            packets: number(0)?,
            bytes: number(8)?,
            discarded: number(16)?,
        })
    }

    fn and(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            discarded: self.discarded + other.discarded,
        }
    }
}

/// Begins to count for a VM. One that is counted goes on.
pub(crate) fn count(directory: &Path, address: Address) -> Result<()> {
    // A program of an earlier version counts nothing by VM.
    if !directory.join(RECEIVED).exists() {
        return Ok(());
    }
    let map = open_map(directory, RECEIVED)?;
    let cpus = libbpf_rs::num_possible_cpus().cannot("count the CPUs")?;
    let zeros = vec![vec![0; 3 * 8]; cpus];
    match map.update_percpu(&key_of(address), &zeros, MapFlags::NO_EXIST) {
        Err(error) if error.kind() == libbpf_rs::ErrorKind::AlreadyExists => Ok(()),
        done => done.cannot("count the VM's packets"),
    }
}

/// Ends all that is kept for a VM.
pub(crate) fn forget(directory: &Path, address: Address) -> Result<()> {
    for name in [BUDGETS, RECEIVED] {
        if !directory.join(name).exists() {
            continue;
        }
        match open_map(directory, name)?.delete(&key_of(address)) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                return Err(error).cannot(format!("forget the VM in {name}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Packets to each VM that the XDP program of a directory serves; none by a program of an earlier version.
///
/// # Errors
/// The program is not there.
pub fn received(directory: &Path) -> Result<Vec<(Address, Received)>> {
    if !directory.join(RECEIVED).exists() {
        return Ok(Vec::new());
    }
    let map = open_map(directory, RECEIVED)?;
    let mut found = Vec::new();
    for key in map.keys() {
        let values = map.lookup_percpu(&key, MapFlags::ANY);
        let values = values.cannot("read what a VM received")?;
        let of_cpus = values.iter().flatten();
        let of_cpus = of_cpus.filter_map(|bytes| Received::of_cpu(bytes));
        let sum = of_cpus.fold(Received::default(), Received::and);
        found.extend(key.first_chunk().map(|address| (*address, sum)));
    }
    found.sort_unstable_by_key(|(address, _)| *address);
    Ok(found)
}

/// Gives a VM that is served a budget, from now on, or takes it away. One without a budget has no bound.
///
/// # Errors
/// The program is not there or of an earlier version; a budget that makes no sense.
pub fn limit(directory: &Path, address: Address, budget: Option<Budget>) -> Result<()> {
    let Some(budget) = budget else {
        if !directory.join(BUDGETS).exists() {
            return Ok(());
        }
        return match open_map(directory, BUDGETS)?.delete(&key_of(address)) {
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
            done => done.cannot("take the VM's budget away"),
        };
    };
    let action = "give the VM a budget";
    budget.check().map_err(|why| broken(action, &why))?;
    let map = open_map(directory, BUDGETS)?;
    map.update(&key_of(address), &budget.entry(), MapFlags::ANY)
        .cannot(action)
}

/// The budgets of the VMs that an XDP program serves; none by a program of an earlier version.
///
/// # Errors
/// The program is not there.
pub fn limits(directory: &Path) -> Result<Vec<(Address, Budget)>> {
    if !directory.join(BUDGETS).exists() {
        return Ok(Vec::new());
    }
    let map = open_map(directory, BUDGETS)?;
    let mut found = Vec::new();
    for key in map.keys() {
        let entry = map.lookup(&key, MapFlags::ANY).cannot("read a budget")?;
        let Some(entry) = entry else { continue };
        let budget = Budget::of_entry(&entry).ok_or_else(|| {
            let cause = io::Error::from(io::ErrorKind::InvalidData);
            broken("read a budget", &cause.to_string())
        })?;
        found.extend(key.first_chunk().map(|address| (*address, budget)));
    }
    found.sort_unstable_by_key(|(address, _)| *address);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use libbpf_rs::{Object, ProgramInput};

    use super::*;
    use crate::{BY_ADDRESS, Counters, counters, load_by_address, program, remove, serve};

    const VM: Address = [0x52, 0x54, 0, 0, 0, 1];
    const OTHER: Address = [0x52, 0x54, 0, 0, 0, 2];
    const UNKNOWN: Address = [0x52, 0x54, 0, 0, 0, 3];
    const DROP: u32 = 1;
    const REDIRECT: u32 = 4;

    /// The program in the kernel, on no card: frames are handed to it by the test. Needs root.
    struct Loaded {
        directory: PathBuf,
        mount: tempfile::TempDir,
        object: Object,
    }

    impl Loaded {
        fn new() -> Self {
            let mount = tempfile::tempdir().unwrap();
            let path = mount.path().to_str().unwrap();
            let mounted = Command::new("mount")
                .args(["-t", "bpf", "bpf", path])
                .status();
            assert!(mounted.unwrap().success());
            let directory = mount.path().join("card");
            std::fs::create_dir(&directory).unwrap();
            let object = load_by_address(&directory, &[0]).unwrap();
            serve(&directory, VM, 1).unwrap();
            serve(&directory, OTHER, 1).unwrap();
            Self {
                directory,
                mount,
                object,
            }
        }

        /// What becomes of the last of so many frames of 64 bytes.
        fn send(&self, to: Address, frames: u32) -> u32 {
            let mut frame = [0; 64];
            frame[..6].copy_from_slice(&to);
            let output = program(&self.object, BY_ADDRESS).unwrap();
            let output = output.test_run(ProgramInput {
                data_in: Some(&frame),
                repeat: frames,
                ..ProgramInput::default()
            });
            output.unwrap().return_value
        }

        fn received(&self, of: Address) -> Received {
            let all = received(&self.directory).unwrap();
            all.into_iter()
                .find(|(address, _)| *address == of)
                .unwrap()
                .1
        }

        fn limit(&self, budget: Budget) {
            limit(&self.directory, VM, Some(budget)).unwrap();
        }
    }

    impl Drop for Loaded {
        fn drop(&mut self) {
            let _ = remove(&self.directory);
            let _ = Command::new("umount").arg(self.mount.path()).status();
        }
    }

    /// A period that the test does not outlast.
    const LONG: Budget = Budget {
        runtime_ns: 1_000_000,
        period_ns: 4_000_000_000,
        packet_ns: 10_000,
    };

    #[test]
    fn packets_are_counted_by_vm_and_without_a_budget_none_is_dropped() {
        let loaded = Loaded::new();
        assert_eq!(loaded.send(VM, 1000), REDIRECT);
        assert_eq!(loaded.send(OTHER, 10), REDIRECT);
        loaded.send(UNKNOWN, 5);
        let of_vm = Received {
            packets: 1000,
            bytes: 64_000,
            discarded: 0,
        };
        assert_eq!(loaded.received(VM), of_vm);
        assert_eq!(loaded.received(OTHER).packets, 10);
        assert_eq!(received(&loaded.directory).unwrap().len(), 2);
        let Counters { to_tap, passed, .. } = counters(&loaded.directory).unwrap();
        assert_eq!((to_tap, passed), (1010, 5));
        // Served again, as by the next apply: the count goes on.
        serve(&loaded.directory, VM, 2).unwrap();
        assert_eq!(loaded.received(VM), of_vm);
        crate::forget(&loaded.directory, VM).unwrap();
        assert_eq!(received(&loaded.directory).unwrap().len(), 1);
    }

    #[test]
    fn what_is_over_a_vms_budget_is_dropped_and_nobody_elses() {
        let loaded = Loaded::new();
        loaded.limit(LONG);
        let begin = Instant::now();
        assert_eq!(loaded.send(VM, 1), REDIRECT);
        // A whole budget at once: 100 packets of 10 us are its 1 ms. One more comes in 40 ms.
        assert_eq!(loaded.send(VM, 10_000), DROP);
        let more = begin.elapsed().as_millis() as u64 / 40 + 1;
        let let_pass = |it: Received| it.packets - it.discarded;
        let of_vm = loaded.received(VM);
        assert_eq!(of_vm.packets, 10_001);
        assert!(
            (100..=100 + more).contains(&let_pass(of_vm)),
            "{of_vm:?} {more}"
        );
        // Dropped ones are not handed over.
        let handed_over = counters(&loaded.directory).unwrap().to_tap;
        assert_eq!(handed_over, let_pass(of_vm));
        assert_eq!(loaded.send(OTHER, 10_000), REDIRECT);
        assert_eq!(loaded.received(OTHER).discarded, 0);
        // Without a budget again, and with a new one, all pass at once.
        limit(&loaded.directory, VM, None).unwrap();
        limit(&loaded.directory, VM, None).unwrap();
        assert_eq!(loaded.send(VM, 1000), REDIRECT);
        assert_eq!(loaded.received(VM).discarded, of_vm.discarded);
    }

    /// However often packets come, time refills the budget, by its rate and no faster.
    #[test]
    fn a_flood_gets_the_budgets_rate_and_no_more() {
        let loaded = Loaded::new();
        // 10 % of a CPU and 100 us a packet: 10 packets at once, and one a millisecond.
        loaded.limit(Budget {
            runtime_ns: 1_000_000,
            period_ns: 10_000_000,
            packet_ns: 100_000,
        });
        let begin = Instant::now();
        let (mut let_pass, mut discarded) = (0, 0);
        // Until it has been refilled twice.
        while let_pass < 30 && begin.elapsed() < Duration::from_secs(20) {
            loaded.send(VM, 1000);
            let at_most = 10 + begin.elapsed().as_millis() as u64 + 1;
            let of_vm = loaded.received(VM);
            let_pass = of_vm.packets - of_vm.discarded;
            discarded = of_vm.discarded;
            assert!(let_pass <= at_most, "{of_vm:?} {at_most}");
        }
        assert!(let_pass >= 30 && discarded > 0, "{let_pass} {discarded}");
    }

    #[test]
    fn budgets_are_read_as_they_were_given_and_senseless_ones_refused() {
        let loaded = Loaded::new();
        assert_eq!(limits(&loaded.directory).unwrap(), []);
        loaded.limit(LONG);
        assert_eq!(limits(&loaded.directory).unwrap(), [(VM, LONG)]);
        for wrong in [
            Budget {
                packet_ns: 0,
                ..LONG
            },
            Budget {
                packet_ns: 1_000_001,
                ..LONG
            },
            Budget {
                runtime_ns: 4_000_000_001,
                ..LONG
            },
            Budget {
                period_ns: 1 << 32,
                ..LONG
            },
        ] {
            limit(&loaded.directory, VM, Some(wrong)).unwrap_err();
        }
        assert_eq!(limits(&loaded.directory).unwrap(), [(VM, LONG)]);
        // With the VM goes what is its own.
        crate::forget(&loaded.directory, VM).unwrap();
        assert_eq!(limits(&loaded.directory).unwrap(), []);
        loaded.limit(Budget {
            runtime_ns: LONG.period_ns,
            packet_ns: 4_000_000_000,
            ..LONG
        });
        remove(&loaded.directory).unwrap();
        assert!(limits(&loaded.directory).unwrap().is_empty());
    }

    /// What a program of an earlier version has not is no error to read, and told when it is asked for.
    #[test]
    fn a_program_without_budgets_serves_and_refuses_a_budget() {
        let loaded = Loaded::new();
        for name in [RECEIVED, BUDGETS] {
            std::fs::remove_file(loaded.directory.join(name)).unwrap();
        }
        serve(&loaded.directory, VM, 1).unwrap();
        assert_eq!(received(&loaded.directory).unwrap(), []);
        assert_eq!(limits(&loaded.directory).unwrap(), []);
        limit(&loaded.directory, VM, None).unwrap();
        limit(&loaded.directory, VM, Some(LONG)).unwrap_err();
        crate::forget(&loaded.directory, VM).unwrap();
    }
}
