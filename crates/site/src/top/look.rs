//! Looks at the host again and again, at little cost.
//!
//! Which threads there are, and what is in force, is found anew every ten seconds, less often where that takes
//! long, and when a thread has ended: both read much of procfs. In between a look reads one file of each thread, and what the
//! kernel counted or recorded of its wake-ups.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use steadyvm_host::discover::{self, Processes, ReceiveThread};
use steadyvm_host::parse::SchedStat;
use steadyvm_host::profile::Profile;
use steadyvm_host::{
    CardCounts, HostControl, Machine, PacketWay, ReceiveEntity, SortedCard, Thread, ThreadId,
};
use steadyvm_sched::service::SOCKET;
use steadyvm_sched::show::VcpuStanding;
use steadyvm_trace::softirqs::Softirqs;
use steadyvm_trace::wake_ups::{Source, WakeUps};

use super::frame::{Frame, Group, InForce, Reading, Receive, Role, SCHEMA_VERSION, Sorted, Stage};
use crate::bounds;
use crate::checks::Checks;
use crate::drift::{Drift, now_unix_s};
use crate::enforced::{self, Reports};
use crate::error::Result;
use crate::peers::{self, Role as PeerRole};

/// How often threads and settings are looked for anew, at most.
const REDISCOVER_EVERY: Duration = Duration::from_secs(10);
/// It takes this share of the time at most: on a slow host, or one with many threads, it is done less often.
const MOST_COST: f64 = 0.005;

/// When to look for threads and settings anew, after that took so much CPU time.
fn rediscover_after(cost: Duration) -> Duration {
    cost.div_f64(MOST_COST).max(REDISCOVER_EVERY)
}

/// A card, a VM or a process, and its threads.
struct Party {
    name: String,
    pid: Option<u32>,
    roles: Vec<Role>,
    /// Of a VM: the cards by which its packets come and that others share.
    shared_cards: Option<Vec<String>>,
    /// Of a VM: the shared card that tells its packets apart.
    sorted: Option<SortedCard>,
}

impl Party {
    /// Its part of the card that tells its packets apart.
    fn sorted_since(&self, before: &Before, machine: &Machine, interval_s: f64) -> Option<Sorted> {
        let sorted = self.sorted.as_ref()?;
        let before = before.cards.get(&self.name);
        let after = sorted.counts(machine)?;
        Some(Sorted::of(&sorted.card, before, &after, interval_s))
    }
}

/// All that is looked at.
#[derive(Default)]
struct Parties {
    nics: Vec<Party>,
    vms: Vec<Party>,
    processes: Vec<Party>,
    warnings: Vec<String>,
}

/// Where the last look ended.
struct Before {
    at: Instant,
    own: Option<SchedStat>,
    threads: BTreeMap<u32, SchedStat>,
    /// By VM, of cards that tell its packets apart.
    cards: BTreeMap<String, CardCounts>,
}

/// Looks at a host.
pub struct Watcher<'c> {
    control: &'c HostControl,
    directory: PathBuf,
    parties: Parties,
    in_force: InForce,
    found_at: Instant,
    rediscover_after: Duration,
    wake_ups: Option<WakeUps>,
    /// None where the kernel takes no BPF programs.
    softirqs: Option<Softirqs>,
    tracing_warning: Option<String>,
    traced: BTreeSet<u32>,
    before: Before,
    reports: Reports,
}

impl<'c> Watcher<'c> {
    /// Begins to look.
    ///
    /// # Errors
    /// A journal or a part of procfs that cannot be read.
    pub fn new(control: &'c HostControl, directory: &Path) -> Result<Self> {
        let mut watcher = Self {
            control,
            directory: directory.to_owned(),
            parties: Parties::default(),
            in_force: InForce::default(),
            found_at: Instant::now(),
            rediscover_after: REDISCOVER_EVERY,
            wake_ups: None,
            softirqs: None,
            tracing_warning: None,
            traced: BTreeSet::new(),
            before: Before {
                at: Instant::now(),
                own: None,
                threads: BTreeMap::new(),
                cards: BTreeMap::new(),
            },
            reports: Reports::at(Path::new(enforced::DIRECTORY)),
        };
        watcher.discover()?;
        watcher.begin();
        Ok(watcher)
    }

    /// What happened since the last look, or since the beginning.
    ///
    /// # Errors
    /// As of [`Watcher::new`].
    pub fn look(&mut self) -> Result<Frame> {
        let machine = self.control.machine().clone();
        let interval_s = self.before.at.elapsed().as_secs_f64().max(1e-6);
        let waits = self.wake_ups.as_mut().map(WakeUps::take).transpose()?;
        let softirqs = self.softirqs.as_mut().map(Softirqs::take).transpose()?;
        let mut has_ended = false;
        let mut warnings = self.parties.warnings.clone();
        let mut enforced: BTreeMap<u32, VcpuStanding> = BTreeMap::new();
        match enforced::ext_standing(Path::new(SOCKET)) {
            Ok(standing) => {
                let vcpus = standing.into_iter().flat_map(|standing| standing.vcpus);
                enforced.extend(vcpus.map(|vcpu| (vcpu.tid, vcpu)));
            }
            Err(error) => warnings.push(format!("budgets of the sched_ext scheduler: {error}")),
        }
        let reports = &mut self.reports;
        let mut stages_of = |party: &Party| -> Vec<Stage> {
            party
                .roles
                .iter()
                .filter_map(|role| {
                    let tid = role.thread.tid;
                    let Ok(scheduling) = machine.threads.scheduling(tid) else {
                        has_ended = true;
                        return None;
                    };
                    let reading = Reading {
                        scheduling,
                        cpus: machine.threads.affinity(tid).ok(),
                        before: self.before.threads.get(&tid).copied(),
                        after: sched_stat(&machine, &role.thread),
                        receive_cpu_ns: role
                            .receives
                            .and_then(|_| machine.cpu_time_ns(&role.thread)),
                        // A thread of a card may be a VM's, too.
                        waits: waits
                            .as_ref()
                            .map(|waits| waits.get(&tid).copied().unwrap_or_default()),
                        softirqs: softirqs.as_ref().and_then(|it| it.get(&tid).copied()),
                    };
                    let stage = Stage::of(role, &reading, interval_s);
                    let found = enforced
                        .remove(&tid)
                        .or_else(|| enforced::deadline::thread(&machine, tid));
                    Some(match found {
                        Some(found) if role.stage == "vcpu" => stage.under(VcpuStanding {
                            guest: reports.of(&party.name),
                            ..found
                        }),
                        _ => stage,
                    })
                })
                .collect()
        };
        let mut group = |party: &Party| {
            let stages = stages_of(party);
            let shared_cards = party.shared_cards.clone();
            let sorted = party.sorted_since(&self.before, &machine, interval_s);
            Group {
                name: party.name.clone(),
                pid: party.pid,
                receive: shared_cards.map(|cards| Receive::of(&stages, cards, sorted)),
                stages,
            }
        };
        let mut groups =
            |parties: &[Party]| -> Vec<Group> { parties.iter().map(&mut group).collect() };
        let nics = groups(&self.parties.nics);
        let vms = groups(&self.parties.vms);
        let processes = groups(&self.parties.processes);
        let own_after = own_sched_stat();
        let own_ran_ns = self
            .before
            .own
            .zip(own_after)
            .map(|(before, after)| after.ran_ns.saturating_sub(before.ran_ns));
        warnings.extend(self.tracing_warning.clone());
        let frame = Frame {
            schema_version: SCHEMA_VERSION,
            at_unix_s: now_unix_s(),
            interval_s,
            in_force: self.in_force.clone(),
            wake_ups_from: match self.wake_ups.as_ref().map(WakeUps::source) {
                Some(Source::Bpf) => "bpf",
                Some(Source::Tracepoints) => "tracepoints",
                None => "schedstat",
            },
            lost_events: self.wake_ups.as_ref().map_or(0, WakeUps::lost),
            own_cpu_percent: own_ran_ns.map(|ran_ns| ran_ns as f64 / 1e7 / interval_s),
            nics,
            vms,
            processes,
            warnings,
        };
        // What finding costs is in the next look's own CPU time.
        self.before.own = own_after;
        let is_due = self.found_at.elapsed() >= self.rediscover_after;
        if has_ended || is_due {
            self.discover()?;
        }
        self.begin_threads();
        Ok(frame)
    }

    fn begin(&mut self) {
        self.before.own = own_sched_stat();
        self.begin_threads();
    }

    fn begin_threads(&mut self) {
        let machine = self.control.machine();
        let roles = self.parties.roles();
        self.before.threads = roles
            .filter_map(|role| Some((role.thread.tid, sched_stat(machine, &role.thread)?)))
            .collect();
        let vms = self.parties.vms.iter();
        self.before.cards = vms
            .filter_map(|vm| Some((vm.name.clone(), vm.sorted.as_ref()?.counts(machine)?)))
            .collect();
        self.before.at = Instant::now();
    }

    /// Finds what is in force, and which threads serve it.
    fn discover(&mut self) -> Result<()> {
        self.found_at = Instant::now();
        let before = own_sched_stat();
        self.find()?;
        let ran = before.zip(own_sched_stat()).map(|(before, after)| {
            Duration::from_nanos(after.ran_ns.saturating_sub(before.ran_ns))
        });
        let cost = ran.unwrap_or_else(|| self.found_at.elapsed());
        self.rediscover_after = rediscover_after(cost);
        Ok(())
    }

    fn find(&mut self) -> Result<()> {
        let status = self.control.show()?;
        let drift = Drift::read(&self.directory);
        let holding = status.settings.iter().filter(|setting| setting.holds);
        let holding = holding.count();
        self.in_force = InForce {
            state: status.state,
            method: status.method.map(|method| method.to_string()),
            holding,
            drifted: status.settings.len() - holding + status.pending.len(),
            drifted_since_unix_s: drift.open.values().min().copied(),
            watch: peers::is_held(&self.directory, PeerRole::Watch),
            measured: bounds::read(&self.directory),
            checks: Checks::read(&self.directory),
        };
        let machine = self.control.machine();
        let threads = machine.all_threads()?;
        self.parties = match &status.profile {
            Some(profile) => of_profile(machine, &threads, profile, &status.packet_ways),
            None => of_host(machine, &threads),
        };
        let tids: BTreeSet<u32> = self.parties.roles().map(|role| role.thread.tid).collect();
        if tids != self.traced {
            self.trace(&tids)?;
            self.traced = tids;
        }
        Ok(())
    }

    fn trace(&mut self, tids: &BTreeSet<u32>) -> Result<()> {
        let softirqs = self.softirqs.as_mut();
        if softirqs.is_none_or(|it| tids.is_empty() || it.retrace(tids).is_err()) {
            let is_any = !tids.is_empty();
            self.softirqs = is_any.then(|| Softirqs::open(tids).ok()).flatten();
        }
        let wake_ups = self.wake_ups.as_mut();
        if wake_ups.is_some_and(|it| !tids.is_empty() && it.retrace(tids).is_ok()) {
            return Ok(());
        }
        self.wake_ups = None;
        self.tracing_warning = None;
        if tids.is_empty() {
            return Ok(());
        }
        let cpus: Vec<usize> = self.control.machine().online()?.iter().collect();
        match WakeUps::open(&cpus, tids) {
            Ok(wake_ups) => {
                self.tracing_warning = wake_ups.why_not_bpf().map(|error| {
                    format!("each wake-up costs about 2 us while it is traced: {error}")
                });
                self.wake_ups = Some(wake_ups);
            }
            Err(error) => {
                self.tracing_warning =
                    Some(format!("wake-ups are means of schedstat only: {error}"));
            }
        }
        Ok(())
    }
}

impl Parties {
    fn roles(&self) -> impl Iterator<Item = &Role> {
        let all = self.nics.iter().chain(&self.vms).chain(&self.processes);
        all.flat_map(|party| &party.roles)
    }
}

fn of_profile(
    machine: &Machine,
    threads: &[Thread],
    profile: &Profile,
    ways: &[PacketWay],
) -> Parties {
    let mut parties = Parties::default();
    for nic in profile.nics.iter().filter(|nic| !nic.is_other) {
        match discover::nic(machine, threads, &nic.name) {
            Ok(found) => {
                let irq = found.irq_threads.iter().map(|thread| role("irq", thread));
                let napi = found.napi_threads.iter().map(|thread| role("napi", thread));
                parties.nics.push(Party {
                    name: nic.name.clone(),
                    pid: None,
                    roles: irq.chain(napi).collect(),
                    shared_cards: None,
                    sorted: None,
                });
            }
            Err(error) => parties.warnings.push(error.to_string()),
        }
    }
    let processes = Processes::of(threads);
    for vm in &profile.vms {
        let (wanted, warnings) = (vm.selector(), &mut parties.warnings);
        let found = discover::find_vm(machine, &processes, &wanted, &vm.users, warnings);
        let party = match found {
            Ok(Some(found)) => {
                let way = ways.iter().find(|way| way.vm == vm.name);
                let receive = ReceiveEntity::of(machine, &processes, &found, way);
                party_of_vm(vm.name.clone(), &found, receive)
            }
            Ok(None) => Party {
                name: vm.name.clone(),
                pid: None,
                roles: Vec::new(),
                shared_cards: None,
                sorted: None,
            },
            Err(error) => {
                parties.warnings.push(error.to_string());
                continue;
            }
        };
        parties.vms.push(party);
    }
    for service in &profile.host_services {
        let warnings = &mut parties.warnings;
        let (unit, users) = (&service.unit, &service.users);
        match discover::host_service(machine, &processes, unit, users, warnings) {
            Ok(found) => parties.processes.extend(found.iter().map(|found| Party {
                name: unit.clone(),
                pid: Some(found.pid),
                roles: found.threads.iter().map(|it| role("thread", it)).collect(),
                shared_cards: None,
                sorted: None,
            })),
            Err(error) => parties.warnings.push(error.to_string()),
        }
    }
    for process in &profile.processes {
        match discover::process(machine, process.pid) {
            Ok(found) => parties.processes.push(Party {
                name: format!("process {}", found.pid),
                pid: Some(found.pid),
                roles: found.threads.iter().map(|it| role("thread", it)).collect(),
                shared_cards: None,
                sorted: None,
            }),
            Err(error) => parties.warnings.push(error.to_string()),
        }
    }
    parties
}

/// Without a profile: all VMs of the host.
fn of_host(machine: &Machine, threads: &[Thread]) -> Parties {
    let processes = Processes::of(threads);
    let vms = discover::all_vms(machine, &processes).into_iter();
    let party = |(name, vm)| {
        let receive = ReceiveEntity::of(machine, &processes, &vm, None);
        party_of_vm(name, &vm, receive)
    };
    Parties {
        vms: vms.map(party).collect(),
        ..Parties::default()
    }
}

fn party_of_vm(name: String, vm: &discover::Vm, receive: ReceiveEntity) -> Party {
    let receiving = receive
        .threads
        .iter()
        .map(|ReceiveThread { kind, thread }| {
            let stage = if vm.vfio_threads.contains(thread) {
                "vfio"
            } else {
                kind.word()
            };
            Role {
                receives: Some(*kind),
                ..role(stage, thread)
            }
        });
    let mut roles: Vec<Role> = receiving.collect();
    roles.extend(vm.io_threads.iter().map(|thread| role("io", thread)));
    roles.extend(vm.main_thread.iter().map(|thread| role("main", thread)));
    roles.extend(vm.vcpus.iter().map(|(number, thread)| Role {
        number: Some(*number),
        ..role("vcpu", thread)
    }));
    Party {
        name,
        pid: Some(vm.pid),
        roles,
        shared_cards: Some(receive.shared_cards),
        sorted: receive.sorted,
    }
}

fn role(stage: &'static str, thread: &ThreadId) -> Role {
    Role {
        stage,
        number: None,
        thread: thread.clone(),
        receives: None,
    }
}

fn sched_stat(machine: &Machine, thread: &ThreadId) -> Option<SchedStat> {
    let path = format!("/proc/{}/task/{}/schedstat", thread.pid, thread.tid);
    SchedStat::parse(&machine.tree.read(&path).ok()?)
}

/// Of this thread, which does all the work.
fn own_sched_stat() -> Option<SchedStat> {
    SchedStat::parse(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_anew_takes_half_a_per_cent_of_the_time_at_most() {
        assert_eq!(
            rediscover_after(Duration::from_millis(20)),
            REDISCOVER_EVERY
        );
        assert_eq!(
            rediscover_after(Duration::from_millis(600)),
            Duration::from_secs(120)
        );
    }
}
