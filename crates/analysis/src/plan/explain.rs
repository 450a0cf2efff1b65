//! Rejections in words: which task or VCPU, in which window, demand and supply.
//!
//! Rule: every rejection names a task or a VCPU, a window t, the demand and the supply in it; demand
//! exceeds supply, except where the answer is "undecided, so no": there t is where the analysis stopped,
//! and demand and supply are the long-run ones in that window (jobs that arrive and are due in it, on
//! whole CPUs).

use super::{
    Enforcement, Explanation, Needs, Request, TaskNeeds, Unit, Vm, enforcement,
    outcome::{Outcome, Owner, overloads},
};
use crate::{
    host::{Rejection, RejectionReason, Vcpu},
    interface::Infeasible,
    task::Task,
    time::{Amount, MAX_INSTANT, Time},
    verdict::{Bound, Stop, Verdict, Violation},
    workload::demand,
};

impl Explanation {
    pub(super) fn words(vm: &str, text: String) -> Self {
        Self {
            vm: Some(vm.to_owned()),
            task: None,
            vcpu: None,
            undecided: false,
            t: None,
            demand: None,
            supply: None,
            text,
        }
    }

    fn with(self, violation: &Violation) -> Self {
        Self {
            t: Some(violation.at),
            demand: Some(violation.demand),
            supply: Some(violation.supply),
            ..self
        }
    }

    fn of_task(self, needs: &TaskNeeds, index: usize) -> Self {
        Self {
            task: needs.tasks.get(index).map(|named| named.name.clone()),
            ..self
        }
    }
}

/// Why a VM has no interface.
pub(super) fn vm(vm: &Vm, outcome: &Outcome, unit: Unit) -> Option<Explanation> {
    let Needs::Tasks(needs) = &vm.needs else {
        return None;
    };
    let name = &vm.name;
    let failed = |violation: &Violation, text: &str| {
        let task = &needs.tasks[violation.index].name;
        let witness = window(&format!("task {task}"), violation, unit);
        Explanation::words(name, format!("VM \"{name}\" {text}: {witness}"))
            .with(violation)
            .of_task(needs, violation.index)
    };
    match outcome {
        Outcome::Interface(_) | Outcome::Chosen(_) | Outcome::BestEffort => None,
        Outcome::TooSmall {
            given,
            least,
            verdict,
        } => {
            let text = format!(
                "is given a budget of {} in every {}, but its tasks need {}",
                unit.show((*given).into()),
                unit.show(least.period.into()),
                unit.show(least.budget.into()),
            );
            Some(match verdict {
                Verdict::Unschedulable(violation) => failed(violation, &text),
                Verdict::Undecided(stop) => undecided_vm(vm, needs, *stop, unit, &text),
                Verdict::Schedulable => undecided_vm(vm, needs, Stop::precision(), unit, &text),
            })
        }
        Outcome::NoInterface(Infeasible::Undecided(stop)) => {
            let text = "has no budget that could be shown to suffice";
            Some(undecided_vm(vm, needs, *stop, unit, text))
        }
        Outcome::NoInterface(Infeasible::DoesNotFit { task, closest }) => {
            let misfit = &needs.tasks[*task].name;
            let limit = needs
                .vcpus
                .map_or(String::new(), |vcpus| format!(" of the {vcpus}"));
            let text = format!(
                "cannot be partitioned by best fit: task {misfit} fits on none{limit} VCPUs; on the one \
                 with most room, on a whole CPU"
            );
            Some(failed(closest, &text).of_task(needs, *task))
        }
        Outcome::NoInterface(Infeasible::Violation(violation)) => {
            let whole = match needs.vcpus {
                Some(vcpus @ 2..) => format!("{vcpus} whole CPUs"),
                _ => "a whole CPU".to_owned(),
            };
            let why = if overloads(needs, needs.vcpus.unwrap_or(1)) {
                " (its tasks' utilisations alone add up to more)"
            } else {
                ""
            };
            Some(failed(
                violation,
                &format!("has tasks that even {whole} cannot hold{why}"),
            ))
        }
    }
}

fn undecided_vm(vm: &Vm, needs: &TaskNeeds, stop: Stop, unit: Unit, what: &str) -> Explanation {
    let cpus = needs.vcpus.unwrap_or(1);
    let long_run = long_run(&needs.tasks(), cpus as usize, stop.at);
    let task = needs
        .tasks
        .get(long_run.index)
        .map_or("?", |named| &named.name);
    let text = format!(
        "VM \"{}\" {what}: {}. {}",
        vm.name,
        undecided(stop, unit),
        so_far(&format!("the tasks (task {task} most)"), &long_run, unit)
    );
    Explanation {
        undecided: true,
        ..Explanation::words(&vm.name, text)
            .with(&long_run)
            .of_task(needs, long_run.index)
    }
}

/// Why the host does not hold the VCPUs and what receives for VMs. `owner`: whose the rejected one is.
pub(super) fn host(
    request: &Request,
    rejection: &Rejection,
    vcpus: &[Vcpu],
    owner: Owner,
) -> Explanation {
    let vm = &request.vms[owner.vm()];
    let name = &vm.name;
    let vcpu = &vcpus[rejection.vcpu];
    let unit = request.unit;
    let number = match owner {
        Owner::Vcpu(_, number) => Some(number),
        Owner::Receive(..) => None,
    };
    let who = match owner {
        Owner::Vcpu(_, number) => format!("VCPU {number}"),
        Owner::Receive(_, position) => {
            let server = &vm.receive[position];
            format!("{} {} (receive)", server.work.words(), server.number)
        }
    };
    let what = format!(
        "{who} of VM \"{name}\" ({} in every {})",
        unit.show(vcpu.budget().into()),
        unit.show(vcpu.period().into()),
    );
    let place = format!(
        "the host's {} CPUs under {}",
        request.host.cpus(),
        request.host_name.word()
    );
    let failed = |violation: &Violation, text: String| {
        let witness = window("it", violation, unit);
        Explanation::words(name, format!("{text}: {witness}")).with(violation)
    };
    let explanation = match &rejection.reason {
        RejectionReason::Violation(violation) => {
            let text = format!("{place} cannot promise {what} its budget");
            let mut explanation = failed(violation, text);
            if request.enforce == Some(Enforcement::Deadline) {
                explanation.text.push_str("; ");
                explanation.text.push_str(enforcement::USABLE);
            }
            explanation
        }
        RejectionReason::OverheadsExceedPeriod => {
            let overheads = request.host.overheads();
            let cost = vcpu.cost(overheads);
            let violation = Violation {
                index: rejection.vcpu,
                at: vcpu.deadline(),
                demand: Amount::from(cost) + Amount::from(overheads.quantum),
                supply: vcpu.deadline().into(),
            };
            let until = if vcpu.deadline() < vcpu.period() {
                "deadline"
            } else {
                "period"
            };
            let text = format!("{what} costs more than its {until} with the host's overheads");
            let mut explanation = failed(&violation, text);
            explanation.text.push_str(
                "; lower [host.overheads], or give it a longer period, or a CPU of its own (budget = period), which \
                 is never switched",
            );
            explanation
        }
        RejectionReason::NoCpu(violation) => failed(
            violation,
            format!(
                "{place} have none left for {what} within its mask: VCPUs that always run have them all"
            ),
        ),
        RejectionReason::Undecided(stop) => {
            let tasks: Vec<Task> = vcpus
                .iter()
                .filter_map(|vcpu| Task::implicit(vcpu.budget(), vcpu.period()).ok())
                .collect();
            let long_run = long_run(&tasks, request.host.cpus() as usize, stop.at);
            let text = format!(
                "{place} could not be shown to promise {what} its budget: {}. {}",
                undecided(*stop, unit),
                so_far("the VCPUs", &long_run, unit)
            );
            Explanation {
                undecided: true,
                ..Explanation::words(name, text).with(&long_run)
            }
        }
    };
    Explanation {
        vcpu: number,
        ..explanation
    }
}

/// Demand and supply of whole CPUs in a window of length `at`, or of the longest period if that is 0.
fn long_run(tasks: &[Task], cpus: usize, at: Time) -> Violation {
    let longest = tasks.iter().map(Task::period).max().unwrap_or(1);
    let at = if at > 0 { at.min(MAX_INSTANT) } else { longest };
    let share = |index: &usize| demand(&tasks[*index], at);
    Violation {
        index: (0..tasks.len()).max_by_key(share).unwrap_or(0),
        at,
        demand: (0..tasks.len()).map(|i| Amount::from(share(&i))).sum(),
        supply: Amount::from(at) * cpus as Amount,
    }
}

fn undecided(stop: Stop, unit: Unit) -> String {
    let at = unit.show(stop.at.into());
    match stop.bound {
        Bound::Work => format!(
            "undecided, so the answer is no: the analysis spent its allowance of work and stopped at \
             t = {at}; this is not a proof. Fewer tasks, periods with common multiples, or a coarser time \
             unit make it decidable"
        ),
        Bound::Horizon => format!(
            "undecided, so the answer is no: it would have to look at windows beyond t = {at}; this is \
             not a proof. A little less demand, periods with common multiples, or a coarser time unit \
             make it decidable"
        ),
        Bound::Precision => {
            "undecided, so the answer is no: the utilisations are too close to the limit \
                             for fractions of 128 bits; this is not a proof. Periods with common \
                             multiples, or a little less demand make it decidable"
                .to_owned()
        }
    }
}

fn so_far(who: &str, long_run: &Violation, unit: Unit) -> String {
    format!(
        "In a window of t = {} {who} demand {} in all, and {} is supplied on whole CPUs",
        unit.show(long_run.at.into()),
        unit.show(long_run.demand),
        unit.show(long_run.supply),
    )
}

fn window(who: &str, violation: &Violation, unit: Unit) -> String {
    format!(
        "in a window of t = {} {who} and what comes before it demand {}, but only {} is certain to be \
         supplied",
        unit.show(violation.at.into()),
        unit.show(violation.demand),
        unit.show(violation.supply),
    )
}
