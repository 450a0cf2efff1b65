//! Rejections in words: which task or VCPU, in which window, demand and supply.

use super::{
    Explanation, Needs, Request, Unit, Vm,
    run::{Outcome, overloads},
};
use crate::{
    host::{Rejection, RejectionReason, Vcpu},
    interface::Infeasible,
    verdict::Violation,
};

impl Explanation {
    pub(super) fn words(vm: &str, text: String) -> Self {
        Self {
            vm: Some(vm.to_owned()),
            task: None,
            vcpu: None,
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
}

/// Why a VM has no interface.
pub(super) fn vm(vm: &Vm, outcome: &Outcome, unit: Unit) -> Option<Explanation> {
    let Needs::Tasks(needs) = &vm.needs else {
        return None;
    };
    let name = &vm.name;
    match outcome {
        Outcome::Interface(_) | Outcome::BestEffort => None,
        Outcome::TooSmall { given, least } => Some(Explanation::words(
            name,
            format!(
                "VM \"{name}\" is given a budget of {} in every {}, but its tasks need {}",
                unit.show((*given).into()),
                unit.show(least.period.into()),
                unit.show(least.budget.into()),
            ),
        )),
        Outcome::NoInterface(Infeasible::Undecided) => Some(Explanation::words(
            name,
            format!(
                "VM \"{name}\": no budget could be shown to suffice within the allowed work; this is \
                 not a proof that none does. Fewer tasks, periods with common multiples or a coarser \
                 time unit make it decidable"
            ),
        )),
        Outcome::NoInterface(Infeasible::DoesNotFit { task }) => {
            let task = &needs.tasks[*task].name;
            let limit = needs
                .vcpus
                .map_or(String::new(), |vcpus| format!(" of the {vcpus}"));
            let text = format!("VM \"{name}\": task {task} fits on none{limit} VCPUs by best fit");
            let explanation = Explanation::words(name, text);
            Some(Explanation {
                task: Some(task.clone()),
                ..explanation
            })
        }
        Outcome::NoInterface(Infeasible::Violation(violation)) => {
            let task = &needs.tasks[violation.index].name;
            let whole = match needs.vcpus {
                Some(vcpus @ 2..) => format!("{vcpus} whole CPUs"),
                _ => "a whole CPU".to_owned(),
            };
            let why = if overloads(&needs.tasks(), needs.vcpus.unwrap_or(1)) {
                " (its tasks' utilisations alone add up to more)"
            } else {
                ""
            };
            let text = format!(
                "VM \"{name}\": even {whole} cannot hold its tasks{why}: {}",
                window(&format!("task {task}"), violation, unit)
            );
            let explanation = Explanation::words(name, text).with(violation);
            Some(Explanation {
                task: Some(task.clone()),
                ..explanation
            })
        }
    }
}

/// Why the host does not hold the VCPUs. `owner`: VM and number of the rejected VCPU.
pub(super) fn host(
    request: &Request,
    rejection: &Rejection,
    vcpus: &[Vcpu],
    owner: (usize, usize),
) -> Explanation {
    let (vm, number) = owner;
    let name = &request.vms[vm].name;
    let vcpu = &vcpus[rejection.vcpu];
    let what = format!(
        "VCPU {number} of VM \"{name}\" ({} in every {})",
        request.unit.show(vcpu.budget().into()),
        request.unit.show(vcpu.period().into()),
    );
    let place = format!(
        "the host's {} CPUs under {}",
        request.host.cpus(),
        request.host_name.word()
    );
    let explanation = match &rejection.reason {
        RejectionReason::Violation(violation) => {
            let text = format!(
                "{place} cannot promise {what} its budget: {}",
                window("it", violation, request.unit)
            );
            Explanation::words(name, text).with(violation)
        }
        RejectionReason::OverheadsExceedPeriod => {
            let cost = request
                .host
                .overheads()
                .inflate(vcpu.budget(), vcpu.period());
            let text = format!(
                "{what} costs {} of CPU time with the host's overheads, more than its period",
                request.unit.show(cost.into())
            );
            Explanation::words(name, text)
        }
        RejectionReason::NoCpu => {
            let text = format!("{place} have none left for {what}, within its mask");
            Explanation::words(name, text)
        }
        RejectionReason::Undecided => {
            let text = format!(
                "{place}: {what} could not be shown to get its budget within the allowed work; this is \
                 not a proof that it does not"
            );
            Explanation::words(name, text)
        }
    };
    Explanation {
        vcpu: Some(number),
        ..explanation
    }
}

fn window(who: &str, violation: &Violation, unit: Unit) -> String {
    let relation = if violation.demand > violation.supply {
        "but only"
    } else {
        "and exactly"
    };
    format!(
        "in a window of t = {} {who} and what comes before it demand {}, {relation} {} is certain to be \
         supplied",
        unit.show(violation.at.into()),
        unit.show(violation.demand),
        unit.show(violation.supply),
    )
}
