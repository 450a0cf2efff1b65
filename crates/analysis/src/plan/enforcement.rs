//! What a kernel's `SCHED_DEADLINE` refuses of a plan that holds in theory.
//!
//! Rule (kernel/sched/deadline.c, core.c): runtime <= deadline <= period; runtime of at least 1,024 ns (2^10, the
//! resolution of its arithmetic); period of 100 us to about 4.19 s (`sysctl_sched_dl_period_min`, `_max`); per root
//! domain at most `sched_rt_runtime_us` / `sched_rt_period_us` = 95 % of its CPUs, of which each CPU's fair server
//! (since 6.12) holds 50 ms in 1 s. Budgets are enforced at ticks unless `HRTICK_DL` is on: set
//! `quantum` of `[host]` to the tick otherwise.

use super::{
    Enforcement, Explanation, InputError, Install, Request, ServerName, Unit, VcpuReport, VmReport,
};
use crate::host::{
    FairServer, Host, Vcpu, VcpuServer,
    overhead::{Keeping, Margin},
};
use crate::time::{Amount, Time};

const LEAST_RUNTIME: Time = 1_024;
const SHORTEST_PERIOD: Time = 100_000;
const LONGEST_PERIOD: Time = (1 << 22) * 1_000;
/// 95 % less the fair server's 5 %, of every CPU.
const USABLE_PERCENT: u8 = 90;

/// The host of a plan, as what enforces it leaves it to VCPUs.
pub(super) fn host(host: Host, enforce: Option<Enforcement>, unit: Unit) -> Host {
    // Where nobody is named, `cbs` is what its name says: `SCHED_DEADLINE`'s.
    let host = match enforce {
        Some(Enforcement::Deadline) | None => host.with_margin(match unit {
            Unit::Nanosecond => Margin::OF_THE_KERNEL,
            Unit::Callers => Margin::ONE_UNIT,
        }),
        Some(Enforcement::Ext | Enforcement::None) => host.with_margin(Margin::default()),
    };
    match enforce {
        Some(Enforcement::Deadline) => {
            let pieces = (unit == Unit::Nanosecond).then_some(FairServer::IN_SHORT_PIECES);
            let fair_server = host.fair_server().or(pieces);
            host.with_usable_percent(USABLE_PERCENT)
                .with_fair_server(fair_server)
        }
        _ => host.with_fair_server(None),
    }
}

/// What `SCHED_DEADLINE` is not, in words: EDF with constant-bandwidth servers is all that it is.
///
/// # Errors
/// A plan for another order, or other servers, that it is to keep.
pub(super) fn check(request: &Request) -> Result<(), InputError> {
    if request.enforce != Some(Enforcement::Deadline) {
        return Ok(());
    }
    if request.host.scheduler().is_fixed_priority() {
        return Err(InputError::new(
            "host.scheduler",
            format!(
                "{}: SCHED_DEADLINE knows no fixed priorities, so it does not keep this plan; write scheduler = \"pedf\" or \
                 \"gedf\", or let a sched_ext scheduler keep it (enforce = \"ext\")",
                request.host_name.word()
            ),
        ));
    }
    if request.host.server() != VcpuServer::ConstantBandwidth {
        return Err(InputError::new(
            "host.server",
            format!(
                "{}: SCHED_DEADLINE's servers are cbs, which may demand more than those of the plan, so its bounds would not \
                 hold; write server = \"cbs\", or let a sched_ext scheduler keep it (enforce = \"ext\")",
                ServerName::from(request.host.server()).word()
            ),
        ));
    }
    Ok(())
}

/// The server that keeps a VCPU's budget.
pub(super) fn server(request: &Request, vcpu: &Vcpu) -> ServerName {
    let is_early = vcpu.deadline() < vcpu.period();
    match request.host.server() {
        VcpuServer::ConstantBandwidth
            if request.host.scheduler().is_fixed_priority()
                || (request.enforce == Some(Enforcement::Ext) && is_early) =>
        {
            ServerName::Sporadic
        }
        server => server.into(),
    }
}

impl Request {
    /// The plan for `SCHED_DEADLINE`, whatever the request says of who enforces it, beside the fair server of the host's
    /// CPUs; where that is not known, it gives normal threads pieces of 1 ms, as steadyvm sets it.
    #[must_use]
    pub fn kept_by_deadline(self, fair_server: Option<FairServer>) -> Self {
        let asked = self.host.with_fair_server(fair_server);
        Self {
            host: host(asked, Some(Enforcement::Deadline), self.unit),
            enforce: Some(Enforcement::Deadline),
            ..self
        }
    }

    /// The plan for a `sched_ext` scheduler, which leaves VCPUs so much of each CPU.
    #[must_use]
    pub fn kept_by_ext(self, percent: u8) -> Self {
        let host = host(self.host, Some(Enforcement::Ext), self.unit);
        Self {
            host: host.with_usable_percent(percent),
            enforce: Some(Enforcement::Ext),
            ..self
        }
    }
}

/// Why a CPU is not all theirs.
pub(super) const USABLE: &str = "SCHED_DEADLINE admits 95 % of a CPU (sched_rt_runtime_us), of which its fair \
                                 server holds 5 %: VCPUs may have 90 %, and each waits for a piece of that server's \
                                 (fair_server of [kernel], 1 ms unless it says otherwise)";

/// What a plan asks `SCHED_DEADLINE` to keep.
struct Kept<'r> {
    vm: &'r str,
    /// A VCPU by its number; none: it receives for the VM.
    vcpu: Option<usize>,
    who: String,
    budget: Time,
    period: Time,
    install: Option<&'r Install>,
}

/// All of a plan; a VCPU with a whole CPU is not kept by a budget.
fn kept(vms: &[VmReport]) -> impl Iterator<Item = Kept<'_>> {
    vms.iter().flat_map(|vm| {
        let vcpus = vm.vcpus.iter().enumerate();
        let is_kept =
            |vcpu: &VcpuReport| !vcpu.dedicated && vcpu.budget > 0 && vcpu.budget < vcpu.period;
        let vcpus = vcpus.filter(move |(_, vcpu)| is_kept(vcpu));
        let vcpus = vcpus.map(|(number, vcpu)| Kept {
            vm: &vm.name,
            vcpu: Some(number),
            who: format!("VCPU {number}"),
            budget: vcpu.budget,
            period: vcpu.period,
            install: vcpu.install.as_ref(),
        });
        let receive = vm.receive.iter().map(|server| Kept {
            vm: &vm.name,
            vcpu: None,
            who: format!("{} {} (receive)", server.work.words(), server.number),
            budget: server.budget,
            period: server.period,
            install: server.install.as_ref(),
        });
        vcpus.chain(receive)
    })
}

/// Why a kernel does not take the plan.
pub(super) fn refusals(request: &Request, vms: &[VmReport]) -> Vec<Explanation> {
    match request.enforce {
        Some(Enforcement::Deadline) => {}
        Some(Enforcement::Ext) => return beside_ext(vms),
        Some(Enforcement::None) | None => return Vec::new(),
    }
    let mut refusals = Vec::new();
    let unit = request.unit;
    // (CPUs, sum of runtime / period in 2^-20), a root domain each.
    let mut domains: Vec<(Vec<u32>, Amount)> = Vec::new();
    for one in kept(vms) {
        // One without a place is refused for its limits, too.
        let (Some(runtime_ns), Some(period_ns)) = one.install.map_or_else(
            || (unit.nanoseconds(one.budget), unit.nanoseconds(one.period)),
            |install| (Some(install.runtime_ns), Some(install.period_ns)),
        ) else {
            continue;
        };
        refusals.extend(beyond_limits(unit, &one, runtime_ns, period_ns));
        let Some(install) = one.install else {
            continue;
        };
        // Rounded down, as the kernel does (to_ratio).
        let load =
            (Amount::from(install.runtime_ns) << 20) / Amount::from(install.period_ns.max(1));
        match domains.iter_mut().find(|(cpus, _)| *cpus == install.cpus) {
            Some((_, sum)) => *sum += load,
            None => domains.push((install.cpus.clone(), load)),
        }
    }
    refusals.extend(
        domains
            .into_iter()
            .filter_map(|(cpus, load)| full(&cpus, load)),
    );
    refusals
}

/// A policy of `sched_ext` comes after `SCHED_DEADLINE`, and its plan counts nothing that comes before.
fn beside_ext(vms: &[VmReport]) -> Vec<Explanation> {
    let receiving = vms.iter().filter(|vm| !vm.receive.is_empty());
    receiving
        .map(|vm| {
            let text = format!(
                "VM \"{}\": receive: its budgets are SCHED_DEADLINE's, which goes before a sched_ext scheduler, so the plan for \
                 that does not hold beside them; write way = \"xdp\", leave receive out, or plan with enforce = \"deadline\"",
                vm.name
            );
            Explanation::words(&vm.name, text)
        })
        .collect()
}

/// The limits of the kernel that a budget breaks.
fn beyond_limits(unit: Unit, one: &Kept<'_>, runtime: Time, period: Time) -> Vec<Explanation> {
    let refuse = |what: &str, is: Time, must: Time, demand: Time, supply: Time| {
        let text = format!(
            "SCHED_DEADLINE refuses {} of VM \"{}\": its {what} is {}, the kernel's limit {}",
            one.who,
            one.vm,
            unit.show(is.into()),
            unit.show(must.into()),
        );
        Explanation {
            vcpu: one.vcpu,
            t: Some(period),
            demand: Some(demand.into()),
            supply: Some(supply.into()),
            ..Explanation::words(one.vm, text)
        }
    };
    let mut refusals = Vec::new();
    if runtime < LEAST_RUNTIME {
        let least = LEAST_RUNTIME;
        refusals.push(refuse("runtime", runtime, least, least, runtime));
    }
    if period < SHORTEST_PERIOD {
        let least = SHORTEST_PERIOD;
        refusals.push(refuse("period", period, least, least, period));
    }
    if period > LONGEST_PERIOD {
        let most = LONGEST_PERIOD;
        refusals.push(refuse("period", period, most, period, most));
    }
    refusals
}

/// That CPUs have no room for so much, in 2^-20; none if they have.
fn full(cpus: &[u32], load: Amount) -> Option<Explanation> {
    let room = (Amount::from(USABLE_PERCENT) * cpus.len() as Amount) << 20;
    if load * 100 <= room {
        return None;
    }
    let percent = |parts: Amount| parts as f64 * 100.0 / f64::from(1 << 20);
    let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
    let text = format!(
        "SCHED_DEADLINE refuses the VCPUs and what receives on CPU {}: {:.1} % of {} %: the kernel admits 95 % of a CPU \
         (sched_rt_runtime_us), and its fair server holds 5 % of that",
        list.join(","),
        percent(load),
        Amount::from(USABLE_PERCENT) * cpus.len() as Amount,
    );
    Some(Explanation {
        vm: None,
        t: Some(1_000_000_000),
        demand: Some((load * 1_000_000_000) >> 20),
        supply: Some((room / 100 * 1_000_000_000) >> 20),
        ..Explanation::words("", text)
    })
}

/// What a reader should know of a plan before installing it.
pub(super) fn notes(request: &Request, vms: &[VmReport]) -> Vec<String> {
    let mut notes = request.notes.clone();
    if request.unit == Unit::Nanosecond {
        // First: a forgotten unit makes all the rest wrong.
        notes.extend(too_short(request, vms));
    }
    notes.extend(preconditions(request, vms));
    if request.unit != Unit::Nanosecond {
        return notes;
    }
    let overheads = request.host.overheads();
    let free = overheads.inflate(1, 2, 1) == 1 && overheads.quantum == 0;
    let shared = vms
        .iter()
        .flat_map(|vm| &vm.vcpus)
        .any(|vcpu| vcpu.budget > 0 && vcpu.budget < vcpu.period);
    if free && shared {
        notes.push(
            "overheads are 0: switches and cold caches cost nothing here; set [host.overheads] before installing"
                .to_owned(),
        );
    }
    for service in &request.services {
        let back = service.send_path.bound;
        if back == 0 || service.wake == 0 {
            notes.push(format!(
                "service \"{}\": the bound ends before {}; give wake and send to count them",
                service.name,
                match (service.wake, back) {
                    (0, 0) => "the guest's wake-up and the way back",
                    (0, _) => "the guest's wake-up",
                    _ => "the way back",
                }
            ));
        }
    }
    notes
}

/// Periods that no kernel keeps.
fn too_short(request: &Request, vms: &[VmReport]) -> Vec<String> {
    let tiny = |vcpu: &&super::VcpuReport| vcpu.period < SHORTEST_PERIOD;
    let found = vms
        .iter()
        .filter_map(|vm| Some((vm, vm.vcpus.iter().find(tiny)?)));
    found
        .map(|(vm, vcpu)| {
            format!(
                "VM \"{}\" has a period of {}: no kernel switches so often (SCHED_DEADLINE: 100 us at least); is \
                 the unit right?",
                vm.name,
                request.unit.show(vcpu.period.into())
            )
        })
        .collect()
}

/// What a reservation with a margin needs, and what an overrun costs.
fn margin(request: &Request, report: &VmReport) -> Option<String> {
    let vcpu = (report.vcpus.iter())
        .find(|vcpu| vcpu.deadline < vcpu.period && vcpu.budget < vcpu.deadline)?;
    let overheads = request.host.overheads();
    if overheads.margin == Margin::default() {
        return None;
    }
    Some(format!(
        "VM \"{}\": what is installed has {} more than a request needs, since a request that uses up all of it costs two: \
         it waits for the next period, and SCHED_DEADLINE cuts the runtime of the one after it. Measure c with its worst case",
        report.name,
        request.unit.show(overheads.margin.of(vcpu.budget).into()),
    ))
}

/// What the guests must do for the promise.
fn preconditions(request: &Request, vms: &[VmReport]) -> Vec<String> {
    let mut notes = Vec::new();
    let overheads = request.host.overheads();
    let counted = overheads.wakeups == 0
        && overheads.keeping != Keeping::Idles
        && overheads.inflate(1, 2, 1) > 1;
    for report in vms {
        if report.soft {
            notes.push(format!(
                "VM \"{}\" is soft: its budget is a floor, and none of its tasks has a promise; `steadyvm simulate` says which \
                 share of its jobs is in time",
                report.name
            ));
        }
        let aligned = |interface: &super::InterfaceReport| interface.deadline.is_some();
        if report.interface.as_ref().is_some_and(aligned) {
            notes.push(format!(
                "VM \"{}\" has a reservation that wakes with the request: it holds only while nothing else wakes that \
                 VCPU. Keep interrupts, timers, kernel threads and other processes of the guest on another VCPU; \
                 where that cannot be, use interface = \"prm\", which needs nothing of the guest{}",
                report.name,
                if request.host.is_isolated() {
                    ""
                } else {
                    ". With isolate = false other VMs on its CPU may be late, too, where it does not hold"
                }
            ));
        }
        notes.extend(margin(request, report));
        if counted
            && !report.soft
            && report
                .interface
                .as_ref()
                .is_some_and(|interface| interface.utilization.is_none())
        {
            notes.push(format!(
                "VM \"{}\" is given, not computed, so how often its guest wakes is unknown: one wake-up a period is \
                 counted; give its tasks, or overheads.wakeups",
                report.name
            ));
        }
    }
    for (vm, report) in request.vms.iter().zip(vms) {
        if let super::Needs::Tasks(needs) = &vm.needs
            && report.vcpus.len() > 1
            && needs.scheduler != super::SchedulerName::Pedf
        {
            notes.push(format!(
                "VM \"{}\" has several VCPUs under a global scheduler: this holds only if its guest always runs its \
                 most urgent tasks on the VCPUs that the host supplies, which Linux does not know, and if none of its VCPUs \
                 sleeps while there is work; scheduler = \
                 \"pedf\" (tasks pinned to VCPUs) needs no help of the guest",
                vm.name
            ));
        }
    }
    notes
}
