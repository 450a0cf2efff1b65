//! The answer: a plan, or why there is none.

use serde::Serialize;

use super::receive::{ReceiveServer, ReceiveWork};
use super::{Missing, ServerName, costs};
use crate::time::{Amount, Time};

/// The answer's version; it changes when a field changes its meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// A plan for a host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Every promise is kept.
    pub feasible: bool,
    /// CPUs on which the host's scheduler keeps every VCPU's promise; `null` if a VM has no interface or
    /// no number of CPUs will do.
    pub min_pcpus: Option<u32>,
    /// False if fewer CPUs could do but no test or packing showed it.
    pub min_pcpus_exact: bool,
    /// CPUs of the host.
    pub pcpus: u32,
    /// The host's scheduler.
    pub scheduler: &'static str,
    /// One entry a VM, in the order given.
    pub vms: Vec<VmReport>,
    /// One entry a CPU.
    pub cpus: Vec<CpuReport>,
    /// One entry a service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceReport>,
    /// Costs of the host that no budget contains, since neither the file nor a measurement has them.
    pub incomplete: Vec<Missing>,
    /// Why the plan is not feasible; empty if it is.
    pub explanations: Vec<Explanation>,
    /// Changes that would make it feasible, each computed.
    pub suggestions: Vec<String>,
    /// What to know before installing it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Times are nanoseconds.
    #[serde(skip)]
    pub(super) nanoseconds: bool,
}

/// A VM in a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VmReport {
    /// Its name.
    pub name: String,
    /// Whether it is real-time.
    pub rt: bool,
    /// Its budget is a floor, and nothing is promised to its tasks; left out where it is not so.
    #[serde(skip_serializing_if = "is_false")]
    pub soft: bool,
    /// Whether its VCPUs may use some of the CPUs only.
    #[serde(skip)]
    pub is_masked: bool,
    /// Its interface; `null` if it has none.
    pub interface: Option<InterfaceReport>,
    /// Under "dm", the tasks by rank, the most urgent first; left out where there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<String>,
    /// Where the interface was left to the plan: what was chosen, and the next cheaper one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
    /// The number of its VCPUs.
    pub vcpu_count: usize,
    /// Its real-time VCPUs; an even spread may give one a budget of 0.
    pub vcpus: Vec<VcpuReport>,
    /// What receives for it with a budget of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub receive: Vec<ReceiveReport>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde gives it so
const fn is_false(value: &bool) -> bool {
    !*value
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InterfaceReport {
    /// The period, time.
    pub period: Time,
    /// The total budget in every period, time.
    pub budget: Time,
    /// For a reservation that begins when the VCPU wakes: when the budget is due after that, time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// The number of VCPUs.
    pub vcpus: usize,
    /// Budget / period, for display.
    pub bandwidth: f64,
    /// The sum of the tasks' utilisations, for display; `null` without tasks.
    pub utilization: Option<f64>,
    /// False if the allowed work ended before smaller budgets were ruled out.
    pub exact: bool,
    /// The longest time without supply of an only VCPU, time.
    #[serde(skip)]
    pub away: Option<Time>,
}

/// A VCPU in a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VcpuReport {
    /// Execution in every period, time.
    pub budget: Time,
    /// When the budget is due, after the VCPU wakes or its period begins, time.
    pub deadline: Time,
    /// The period, time.
    pub period: Time,
    /// The CPUs it runs on; empty if the host does not hold it.
    pub cpus: Vec<u32>,
    /// It has its CPU to itself.
    pub dedicated: bool,
    /// What a host's enforcement has to set; `null` if the plan does not place the VCPU, or the unit of time is
    /// the caller's and unknown.
    pub install: Option<Install>,
    /// For partitioned guests, the names of its tasks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<String>,
}

/// What enforces a VCPU's promise, in the units of `sched_setattr(2)`: all that a scheduler, or a simulator, has to know of it.
///
/// The analysis holds for a `server` of `runtime_ns`, due `deadline_ns` after the VCPU wakes (its period begins), in every
/// `period_ns`, on a host that looks at budgets every `quantum_ns`. Of `runtime_ns`, the guest may use the budget of
/// [`VcpuReport::budget`]; switches, cold caches and the rest of quanta may use the costs, and nothing the margin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Install {
    /// Execution to allow in every period: the VCPU's budget, the host's costs of it (whole quanta where the host has a
    /// quantum) and the margin, nanoseconds. (The budget alone, with which the guest was analysed, is
    /// [`VcpuReport::budget`].)
    pub runtime_ns: Time,
    /// From the VCPU's wake-up to the end of its budget, nanoseconds.
    pub deadline_ns: Time,
    /// Nanoseconds.
    pub period_ns: Time,
    /// The CPUs it may use. A VCPU that always runs (`runtime_ns` = `period_ns`) has its only one to itself and
    /// needs an affinity, no reservation.
    pub cpus: Vec<u32>,
    /// Of `runtime_ns`, what nothing may use: a reservation of `SCHED_DEADLINE` that is due before its period ends must
    /// not be used up, or the next request finds its runtime cut. 0 elsewhere.
    pub margin_ns: Time,
    /// How the runtime behaves while the guest sleeps. `cbs` is `SCHED_DEADLINE`'s server, with the revised wake-up rule
    /// and the timer of it where the deadline is before the period's end; under fixed priorities, and for such deadlines
    /// with `enforce = "ext"`, `sporadic` takes its place.
    pub server: ServerName,
    /// At which multiples releases and ends of budgets are seen, nanoseconds; 0: at once.
    pub quantum_ns: Time,
    /// Under pdm and gdm: a priority of `SCHED_FIFO`, 98 downwards by rising deadline; else `null`.
    pub priority: Option<u32>,
}

/// A CPU in a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CpuReport {
    /// Its number.
    pub cpu: u32,
    /// The share real-time VCPUs and what receives for VMs use, overheads included, for display. On a global host the shared CPUs
    /// show their mean.
    pub utilization: f64,
    /// What is left for everything else, for display.
    pub slack: f64,
}

/// A service's bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceReport {
    /// Its name.
    pub name: String,
    /// Its VM's name.
    pub vm: String,
    /// The sum of the terms, time; `null` if there is no bound.
    pub bound: Option<Time>,
    /// From the wire to the VM, time.
    pub receive_path: Option<Time>,
    /// The VCPU may be away, time.
    pub blackout: Option<Time>,
    /// The guest's part, time.
    pub guest_response: Option<Time>,
    /// From the guest's wake-up to its task, time.
    pub guest_wakeup: Option<Time>,
    /// The way back, time.
    pub send_path: Option<Time>,
    /// What the guest must give the service's task as its deadline, from the packet's delivery to the VM on, so that
    /// the bound holds; time.
    pub guest_deadline: Option<Time>,
    /// Under "dm": the priority that the guest must give it among the VM's tasks, 1 is the most urgent.
    pub guest_rank: Option<usize>,
    /// The ways in and out, term by term.
    pub stages: Vec<StageReport>,
    /// Terms for which the bound has nothing, since neither the file nor a measurement has them: it is too small by them.
    pub incomplete: Vec<Missing>,
    /// The limit asked for, time.
    pub limit: Option<Time>,
    /// The bound is within the limit.
    pub met: bool,
}

impl ServiceReport {
    /// What the bound has nothing for, and what to do, in words; none if it is complete.
    pub fn lacks(&self) -> Option<String> {
        (!self.incomplete.is_empty()).then(|| costs::sentence(&self.incomplete))
    }
}

/// A way of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StageReport {
    /// "receive" or "send".
    pub name: &'static str,
    /// The path it shares with other streams; `null` if it shares none.
    pub on: Option<String>,
    /// The sum of its terms, time.
    pub bound: Time,
    /// The shortest time it takes; the rest is jitter of what follows, time.
    pub least: Time,
    /// What it is made of.
    pub terms: Vec<TermReport>,
}

/// A term of a way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TermReport {
    /// What costs it.
    pub what: String,
    /// Time.
    pub time: Time,
}

/// A reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The VM concerned.
    pub vm: Option<String>,
    /// The task concerned.
    pub task: Option<String>,
    /// The VCPU concerned, its number in the VM.
    pub vcpu: Option<usize>,
    /// A bound of the analysis was reached: no proof that it cannot be, and still no yes.
    pub undecided: bool,
    /// The window's length, time. Where undecided: the window at which the analysis stopped.
    pub t: Option<Time>,
    /// What has to be executed in it: more than the supply, except where undecided. For a service: its
    /// bound.
    pub demand: Option<Amount>,
    /// What is certain to be supplied in it. For a service: its limit.
    pub supply: Option<Amount>,
    /// The whole reason in words.
    pub text: String,
}

/// A receive server in a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReceiveReport {
    /// What its thread does.
    pub work: ReceiveWork,
    /// Its number among those of the same work.
    pub number: usize,
    /// Execution in every period, time.
    pub budget: Time,
    /// The period, time.
    pub period: Time,
    /// The CPUs it runs on; empty if the host does not hold it.
    pub cpus: Vec<u32>,
    /// What the plan counts for it; `null` if it has no place, or the unit of time is unknown. The thread itself gets the budget
    /// alone.
    pub install: Option<Install>,
}

impl ReceiveReport {
    pub(super) fn of(server: &ReceiveServer) -> Self {
        Self {
            work: server.work,
            number: server.number,
            budget: server.budget,
            period: server.period,
            cpus: Vec::new(),
            install: None,
        }
    }
}
