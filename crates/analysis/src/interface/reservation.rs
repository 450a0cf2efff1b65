//! Wake-aligned reservations: an interface (Q, D, T) that begins with the request.
//!
//! Model: a VM with one sporadic task (C, D, T, J) without self-suspension, on one VCPU that wakes for nothing
//! else, as a hard constant-bandwidth server with budget Q = C, deadline D - J and period T.
//!
//! Why it suffices: a job arrives up to J after its release, T after the one before. The VCPU wakes with it. The
//! server's last period has begun no later than the latest arrival of the last job, so the next one may begin by the
//! latest arrival of this one, and gives C within D - J of then: by the release + D. A periodic
//! resource does not know when requests come and has to supply C in *every* window of D.
//!
//! What must not be:
//! - a second task, or the guest's own work on the same VCPU. It would begin the period, and the
//!   request would find the rest of a budget; then use a periodic resource;
//! - where D - J < T on `SCHED_DEADLINE`, a request that uses up all that is installed. The kernel then begins the next
//!   period by a timer, T after the last one, also while the VCPU sleeps. A request that comes later finds that
//!   period running, due at d, gets (d - now) Q / (D - J), and waits a period for the rest. So what is installed has a
//!   margin beyond C ([`crate::host::overhead::Margin`]), and a request that overruns it costs two: it waits for the
//!   next period, and the one after it finds its runtime cut.
//!
//! Where no margin fits into D - J, the VCPU has a CPU of its own: its density is 1, so nothing would run beside it.
//!
//! Sources: Abeni and Buttazzo, RTSS 1998 (a server per task); constrained deadlines: Casini et al., RTNS 2017;
//! `dl_task_timer`, `update_dl_revised_wakeup` in kernel/sched/deadline.c.

use super::Interface;
use crate::{host::overhead::Margin, supply::Replenishment, task::Task};

/// The reservation for `tasks`; `None` unless there is one task and it does not suspend itself.
pub fn minimal(tasks: &[Task]) -> Option<Interface> {
    let [task] = tasks else {
        return None;
    };
    (task.suspension() == 0).then(|| Interface {
        period: task.period(),
        budget: task.execution(),
        vcpu_budgets: vec![task.execution()],
        partition: None,
        due: Some(task.window()),
        replenishment: Replenishment::AtOnce,
        exact: true,
    })
}

/// The same with a margin to install; one that has no room for it before its deadline is a whole CPU.
pub fn with_margin(tasks: &[Task], margin: Margin) -> Option<Interface> {
    let interface = minimal(tasks)?;
    let due = interface.due.unwrap_or(interface.period);
    let crowded = due < interface.period
        && interface.budget.saturating_add(margin.of(interface.budget)) > due
        && margin.once > 0;
    if !crowded {
        return Some(interface);
    }
    Some(Interface {
        period: due,
        budget: due,
        vcpu_budgets: vec![due],
        ..interface
    })
}
