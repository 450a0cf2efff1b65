//! Budgets that `SCHED_DEADLINE` keeps, from what the kernel counts of each thread.
//!
//! `/proc/TID/schedstat` has the time on a CPU and the time that a thread could have run and did not, throttled or
//! preempted; `/proc/TID/sched` what is left of the budget, switches and migrations (`proc_sched_show_task` of kernel/sched/debug.c). The
//! kernel counts neither periods nor throttling: those figures are none.

use steadyvm_host::discover::{self, Processes};
use steadyvm_host::parse::SchedStat;
use steadyvm_host::{Machine, Policy};
use steadyvm_sched::show::{DecisionTimes, SCHEMA_VERSION, Standing, VcpuStanding};

use crate::error::Result;

/// A thread that may have a budget.
pub struct Candidate {
    /// The VM's name.
    pub vm: String,
    /// The VCPU's number.
    pub vcpu: u32,
    /// Its thread.
    pub tid: u32,
}

/// The VCPUs of all VMs, and threads by name, numbered in order of mention.
///
/// # Errors
/// A part of procfs that cannot be read.
pub fn candidates(machine: &Machine, named: &[(String, u32)]) -> Result<Vec<Candidate>> {
    let mut found = Vec::new();
    let threads = machine.all_threads()?;
    for (name, vm) in discover::all_vms(machine, &Processes::of(&threads)) {
        found.extend(vm.vcpus.iter().map(|(&vcpu, thread)| Candidate {
            vm: name.clone(),
            vcpu,
            tid: thread.tid,
        }));
    }
    for (at, (name, tid)) in named.iter().enumerate() {
        let vcpu = named[..at]
            .iter()
            .filter(|(other, _)| other == name)
            .count();
        found.push(Candidate {
            vm: name.clone(),
            vcpu: vcpu as u32,
            tid: *tid,
        });
    }
    Ok(found)
}

/// How those stand that have a budget; none if nobody has.
pub fn standing(machine: &Machine, candidates: &[Candidate]) -> Option<Standing> {
    let vcpus: Vec<VcpuStanding> = candidates
        .iter()
        .filter_map(|it| {
            let mut vcpu = thread(machine, it.tid)?;
            vcpu.vm.clone_from(&it.vm);
            vcpu.vcpu = it.vcpu;
            Some(vcpu)
        })
        .collect();
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).ok()?;
    (!vcpus.is_empty()).then(|| Standing {
        schema_version: SCHEMA_VERSION,
        mechanism: "deadline".into(),
        attached: true,
        at_ns: now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64,
        decisions: DecisionTimes::default(),
        vcpus,
    })
}

/// How a thread stands, without its names; none if it has no budget, or has ended.
pub fn thread(machine: &Machine, tid: u32) -> Option<VcpuStanding> {
    let scheduling = machine.threads.scheduling(tid).ok()?;
    if scheduling.policy != Policy::Deadline || scheduling.period_ns == 0 {
        return None;
    }
    let read = |name: &str| {
        machine
            .tree
            .read(&format!("/proc/{tid}/{name}"))
            .unwrap_or_default()
    };
    let (sched, stat) = (read("sched"), SchedStat::parse(&read("schedstat")));
    let count = |name: &str| number(&sched, name).and_then(|it| u64::try_from(it).ok());
    let budget_ns = scheduling.runtime_ns;
    // What is left; below 0 it is owed.
    let left = number(&sched, "dl.runtime");
    Some(VcpuStanding {
        tid,
        alive: true,
        budget_ns,
        period_ns: scheduling.period_ns,
        server: "cbs".into(),
        used_ns: stat.map_or(0, |stat| stat.ran_ns),
        period_used_ns: left.map(|left| (i128::from(budget_ns) - i128::from(left)).max(0) as u64),
        waited_ns: stat.map(|stat| stat.waited_ns),
        preemptions: count("nr_involuntary_switches").unwrap_or(0),
        migrations: count("se.nr_migrations").unwrap_or(0),
        dispatches: stat.map_or(0, |stat| stat.times),
        cpu: processor(&read("stat")).unwrap_or(0),
        ..VcpuStanding::default()
    })
}

/// A line of `/proc/TID/sched`: a name, a colon and a whole number.
fn number(text: &str, name: &str) -> Option<i64> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(left, _)| left.trim() == name)
        .and_then(|(_, right)| right.trim().parse().ok())
}

/// The 39th word of `/proc/TID/stat` (`proc_pid_stat(5)`). The name, the second one, may have blanks and brackets.
fn processor(text: &str) -> Option<u32> {
    let (_, after) = text.rsplit_once(')')?;
    after.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_the_kernel_are_read_by_their_names() {
        let text = "CPU 0/KVM (812, #threads: 4)\n---\nse.nr_migrations     :      7\nnr_switches :  31\n\
                    dl.runtime                :      -1500\nprio : -1\n";
        assert_eq!(number(text, "se.nr_migrations"), Some(7));
        assert_eq!(number(text, "dl.runtime"), Some(-1500));
        assert_eq!(number(text, "dl.deadline"), None);
    }

    #[test]
    fn the_processor_is_found_behind_any_name() {
        let words: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        let text = format!("812 (CPU 0/KVM) x) {}", words.join(" "));
        assert_eq!(processor(&text), Some(39));
        assert_eq!(processor("812 (a) R 1"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}") {
            let _ = (number(&text, "a"), processor(&text));
        }
    }
}
