//! The question that a comparison of host methods answers.

use super::service_of;
use crate::engine::results::Record;
use crate::testbed::{ComparedMethod, Guests, Service};
use steadyvm_report::Answer;

/// Of a comparison's record.
pub fn answer(record: &Record) -> Answer {
    steadyvm_comparison::answer(record, question(service_of(record), &record.rows))
}

/// What a run answers: the title of its page.
fn question(service: Service, rows: &[String]) -> &'static str {
    let methods = rows.iter().filter_map(|row| row.parse().ok());
    let methods: Vec<ComparedMethod> = methods.collect();
    match service {
        Service::Own => steadyvm_comparison::own_question(rows),
        Service::Host => "How steady is a service of the host itself beside bulk traffic?",
        Service::Container => "How steady is a service in a container beside bulk traffic?",
        Service::Vm if methods.iter().any(|it| it.row().role.is_peer()) => {
            "How do steadyvm's methods compare with what others use, beside bulk traffic?"
        }
        Service::Vm
            if methods
                .iter()
                .any(|it| it.row().guests == Guests::OutsourcedBulk) =>
        {
            "What does a VM with outsourced sockets cost over no VM?"
        }
        Service::Vm if methods.iter().any(|it| it.kernel_is_named) => {
            "Does another kernel keep a VM's service steadier beside bulk traffic?"
        }
        Service::Vm if methods.iter().any(|it| is_outsourced(it.row().guests)) => {
            "How steady is a VM whose sockets the host serves, beside bulk traffic?"
        }
        Service::Vm => "Which host method keeps a VM's service steady beside bulk traffic?",
    }
}

fn is_outsourced(guests: Guests) -> bool {
    matches!(
        guests,
        Guests::Outsourced | Guests::OutsourcedPolling | Guests::OutsourcedQemu
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn pages_of_different_questions_have_different_titles() {
        let of = |service, names: &[&str]| {
            let rows: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
            question(service, &rows)
        };
        let titles = BTreeSet::from([
            of(Service::Vm, &["vanilla", "preempt-rt"]),
            of(Service::Vm, &["vanilla", "preempt-rt@7.3-rt"]),
            of(Service::Vm, &["tuned", "preempt-rt"]),
            of(Service::Vm, &["rt-process", "preempt-rt"]),
            of(Service::Vm, &["preempt-rt", "outsourcing"]),
            of(Service::Host, &["vanilla"]),
            of(Service::Container, &["preempt-rt"]),
            of(Service::Own, &["without", "with"]),
            of(Service::Own, &["vanilla", "rt-profile"]),
        ]);
        assert_eq!(titles.len(), 9, "{titles:?}");
        assert!(titles.iter().all(|title| title.ends_with('?')));
    }
}
