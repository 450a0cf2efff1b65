//! The experiments of one shape: percentiles of latencies, by method, setting or another row, and condition.
//! A new one is a folder and a line here; the command line has a verb for each.

use crate::engine::results::Record;
use crate::experiment::Experiment;
use crate::nisp::{tcp, udp};
use crate::{
    adversary, clock, compare, connections, density, end_to_end, inversion, kamailio, layer2,
    memcached, rtca, sections, shared_card, vcpu,
};
use steadyvm_report::Answer;

/// The experiments, by the verbs of `steadyvm-lab experiment`.
pub const EXPERIMENTS: &[&Experiment] = &[
    &adversary::EXPERIMENT,
    &clock::EXPERIMENT,
    &connections::EXPERIMENT,
    &density::EXPERIMENT,
    &end_to_end::EXPERIMENT,
    &inversion::EXPERIMENT,
    &kamailio::EXPERIMENT,
    &layer2::EXPERIMENT,
    &memcached::EXPERIMENT,
    &sections::EXPERIMENT,
    &shared_card::EXPERIMENT,
];

/// What the page of a record begins with, and what it compares, in the plural; `None` if no experiment here wrote it.
pub fn answer(record: &Record) -> Option<(&'static str, Answer)> {
    let (compared, answer) = match &*record.experiment {
        compare::NAME => ("methods", compare::answer(record)),
        udp::NAME => ("configurations", udp::answer(record)),
        tcp::NAME => ("configurations", tcp::answer(record)),
        rtca::NAME => ("configurations", rtca::answer(record)),
        vcpu::NAME => ("mechanisms", vcpu::answer(record)),
        name => {
            let experiment = EXPERIMENTS.iter().find(|it| it.words.name == name)?;
            (experiment.compared(), (experiment.answer)(record))
        }
    };
    Some((compared, answer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Rows;
    use std::collections::BTreeSet;

    #[test]
    fn every_experiment_has_a_verb_of_its_own() {
        let names: BTreeSet<&str> = EXPERIMENTS.iter().map(|it| it.words.name).collect();
        assert_eq!(names.len(), EXPERIMENTS.len());
        assert!(!names.contains("nisp") && !names.contains("rtca"));
    }

    #[test]
    fn every_experiment_answers_a_question_of_its_own_also_where_nothing_was_measured() {
        let own = [compare::NAME, udp::NAME, tcp::NAME, rtca::NAME, vcpu::NAME];
        let registered = EXPERIMENTS.iter().map(|it| it.words.name);
        let answers = own.into_iter().chain(registered).map(|name| {
            let record = Record {
                experiment: name.to_owned(),
                ..Record::default()
            };
            answer(&record).unwrap().1
        });
        let answers: Vec<Answer> = answers.collect();
        let questions: BTreeSet<&str> = answers.iter().map(|it| &*it.question).collect();
        assert_eq!(questions.len(), answers.len(), "{questions:?}");
        for it in &answers {
            assert!(it.question.ends_with('?'));
            assert_eq!(it.in_short(), "Nothing was measured.");
        }
        assert!(answer(&Record::default()).is_none());
    }

    #[test]
    fn every_setting_has_a_name_of_its_own() {
        for experiment in EXPERIMENTS {
            if let Rows::Settings(all) = experiment.rows {
                let names: BTreeSet<&str> = all.iter().map(|it| it.name).collect();
                assert_eq!(names.len(), all.len());
            }
        }
    }
}
