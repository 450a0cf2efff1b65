//! Global EDF with limited carry-in.
//!
//! Model: sporadic tasks that never suspend under global EDF on m processors.
//!
//! Formula: that of global guests ([`crate::guest::global_edf`]) on m processors that are always available. The window begins
//! where a processor idles or executes work that is due later. So at most m - 1 others have an unfinished job there. A
//! server whose guest may sleep is not of the model: it may have budget left and no work.
//!
//! It accepts sets that the response times of [`super::rta`] refuse, and the other way round. Under fixed priorities response
//! times are not improved by it (docs/design/analysis.md).
//!
//! Complexity: that of the guests' test. Sufficient. Source: Baruah, RTSS 2007.

use super::Candidate;
use crate::{guest::global_edf, supply::Dedicated, task::Task, work::Work};

/// True if the analysis shows `vcpus` schedulable.
pub(super) fn test(vcpus: &[Candidate], processors: usize, work: &mut Work) -> bool {
    let Ok(processors) = u32::try_from(processors) else {
        return false;
    };
    let tasks: Vec<Task> = vcpus.iter().map(|vcpu| vcpu.task).collect();
    global_edf::test(&tasks, &Dedicated::new(processors), work).is_schedulable()
}
