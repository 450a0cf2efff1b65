//! Wake-aligned reservations: an interface (Q, D, T) that begins with the request.
//!
//! Model: a VM with one sporadic task (C, D, T, J) without self-suspension, on one VCPU that wakes for nothing
//! else, as a hard constant-bandwidth server with runtime Q = C, deadline D - J and period T.
//!
//! Why it suffices: a job arrives up to J after its release, T after the one before. The VCPU wakes with it; its
//! last period has begun no later than the latest arrival of the last job, so the server replenishes no later
//! than the latest arrival of this one, and gives Q = C within D - J of then: by the release + D. A periodic
//! resource does not know when requests come and has to supply C in *every* window of D.
//! What must not be: a second task, or the guest's own work on the same VCPU. It would begin the period, and the
//! request would find the rest of a budget; then use a periodic resource.
//!
//! Source: Abeni and Buttazzo, RTSS 1998 (a server per task); constrained deadlines: Casini et al., RTNS 2017.

use super::Interface;
use crate::{supply::Replenishment, task::Task};

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
