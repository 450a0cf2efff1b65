//! The CPUs of a plan, and those that this machine has.

use steadyvm_analysis::host::FairServer;
use steadyvm_analysis::plan::file::HostCpus;
use steadyvm_host::{CpuSet, Machine, Reservation, longest_fair_server};

use crate::error::Result;

/// The CPUs of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpusHere {
    online: CpuSet,
    /// Those among which the kernel moves threads by itself.
    balanced: CpuSet,
    /// The fair server of theirs that runs in the longest pieces.
    fair_server: Option<Reservation>,
}

impl CpusHere {
    /// Those of a machine.
    ///
    /// # Errors
    /// A machine that does not say.
    pub fn of(machine: &Machine) -> Result<Self> {
        Ok(Self {
            online: machine.online()?,
            balanced: machine.balanced_cpus()?,
            fair_server: longest_fair_server(machine)?,
        })
    }

    /// The first CPUs.
    #[cfg(test)]
    pub fn first(count: usize) -> Self {
        Self {
            online: CpuSet::first(count),
            balanced: CpuSet::first(count),
            fair_server: None,
        }
    }

    /// Their numbers, for a host that does not say which its VMs have: all that threads are moved among.
    pub fn numbers(&self) -> Vec<u32> {
        self.balanced.iter().map(|cpu| cpu as u32).collect()
    }

    /// What normal threads have of each CPU before VCPUs, once a profile that asks for pieces of so long is in force.
    pub fn fair_server(&self, piece_us: Option<u32>) -> Option<FairServer> {
        let found = self
            .fair_server
            .filter(|it| it.runtime_ns > 0 && it.period_ns > 0)?;
        let server = piece_us.map_or(found, |us| found.in_pieces_of(u64::from(us) * 1000));
        Some(FairServer {
            runtime: i64::try_from(server.runtime_ns).ok()?,
            period: i64::try_from(server.period_ns).ok()?,
        })
    }

    /// Why a plan for these CPUs is none for this machine.
    pub fn lacks(&self, hosts: &HostCpus) -> Option<String> {
        let HostCpus { cpus, scheduler } = hosts;
        let wanted: CpuSet = cpus.iter().map(|&cpu| cpu as usize).collect();
        let is_global = scheduler.starts_with('g');
        let there = if is_global {
            &self.balanced
        } else {
            &self.online
        };
        // Under a global scheduler the kernel chooses CPUs: their number counts.
        let fits = if is_global {
            wanted.len() <= there.len()
        } else {
            wanted.is_subset(there)
        };
        if fits {
            return None;
        }
        let isolated = if is_global && self.balanced != self.online {
            " (isolated CPUs take no thread by themselves)"
        } else {
            ""
        };
        Some(format!(
            "the plan is for CPUs {wanted}, and this host has CPUs {there}{isolated}: correct pcpus or cpus of [host], or \
             bring the CPUs online"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacks(online: &str, balanced: &str, cpus: &[u32], scheduler: &'static str) -> bool {
        let here = CpusHere {
            online: online.parse().unwrap(),
            balanced: balanced.parse().unwrap(),
            fair_server: None,
        };
        let cpus = cpus.to_vec();
        here.lacks(&HostCpus { cpus, scheduler }).is_some()
    }

    #[test]
    fn the_fair_server_is_the_machines_in_the_pieces_of_the_profile() {
        let mut here = CpusHere::first(2);
        assert_eq!(here.fair_server(Some(1000)), None);
        here.fair_server = Some(Reservation {
            runtime_ns: 50_000_000,
            period_ns: 1_000_000_000,
        });
        let short = here.fair_server(Some(1000)).unwrap();
        assert_eq!(short.runtime, 1_000_000);
        assert!(short.period <= 20_000_000);
        let long = here.fair_server(None).unwrap();
        assert_eq!((long.runtime, long.period), (50_000_000, 1_000_000_000));
    }

    #[test]
    fn a_plan_for_cpus_that_are_not_there_is_none_for_this_machine() {
        assert!(lacks("0-1", "0-1", &[0, 1, 2, 3], "gedf"));
        assert!(!lacks("0-1", "0-1", &[0, 1], "pedf"));
        // Partitioned plans name their CPUs, global ones count them.
        assert!(lacks("0,2", "0,2", &[0, 1], "pedf"));
        assert!(!lacks("0,2", "0,2", &[0, 1], "gedf"));
        assert!(!lacks("0-3", "0-1", &[2, 3], "pedf"));
        assert!(lacks("0-3", "0-1", &[1, 2, 3], "gdm"));
    }
}
