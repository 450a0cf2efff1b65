//! The terms that a plan allows, beside what was counted, and what of it is news. Pure.
//!
//! Rule: news is a term's first request over what is planned, and then the 2nd, 4th, 8th and so on: a bound that is broken by each
//! request does not fill the journal.

use std::collections::BTreeMap;

use steadyvm_analysis::plan::ServiceReport;
use steadyvm_sched::show::GuestReport;
use steadyvm_trace::requests::{STAGES, Seen};

use super::{Broken, Checked, Term};
use crate::explain::Allowed;

/// The term of which the guest reports misses.
pub const GUESTS_DEADLINES: &str = "deadlines, by the guest's report";

/// The names of the terms, in the order of [`steadyvm_trace::requests::Stage`].
const TERMS: [&str; STAGES] = [
    "receive path",
    "VCPU blackout",
    "guest: response, wake-up, transmit",
    "way back: vhost send",
    "in all, to the card's driver",
];

/// What the services of a VM may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The VM.
    pub vm: String,
    /// Its services with a bound.
    pub services: Vec<String>,
    /// What the bounds have nothing for.
    pub lacks: Option<String>,
    /// The longest of each stage; none: no bound.
    pub allowed_ns: [Option<u64>; STAGES],
}

impl Planned {
    /// Of the services of a plan that have a bound, by VM. A stage that one service of a VM has no bound for has none.
    pub fn of(services: &[ServiceReport]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for service in services.iter().filter(|service| service.bound.is_some()) {
            let allowed = Allowed::of(service);
            let stages = [
                allowed.receive,
                allowed.blackout,
                allowed.guest,
                allowed.back,
                allowed.whole,
            ];
            let stages = stages.map(|time| u64::try_from(time?).ok());
            let name = service.name.clone();
            let Some(known) = all.iter_mut().find(|known| known.vm == service.vm) else {
                all.push(Self {
                    vm: service.vm.clone(),
                    services: vec![name],
                    lacks: service.lacks(),
                    allowed_ns: stages,
                });
                continue;
            };
            known.services.push(name);
            known.lacks = known.lacks.take().or_else(|| service.lacks());
            for (known, other) in known.allowed_ns.iter_mut().zip(stages) {
                *known = known.zip(other).map(|(one, other)| one.max(other));
            }
        }
        all
    }

    /// Beside what was counted.
    pub fn beside(&self, seen: &[Seen; STAGES], guest: Option<GuestReport>) -> Checked {
        let stages = TERMS.iter().zip(self.allowed_ns).zip(seen);
        let terms = stages.map(|((name, planned_ns), seen)| {
            let longest_ns = (seen.n > 0).then_some(seen.longest_ns);
            let near = longest_ns
                .zip(planned_ns)
                .map(|(longest, planned)| longest as f64 / planned.max(1) as f64);
            Term {
                term: (*name).to_owned(),
                planned_ns,
                n: seen.n,
                over: seen.over,
                longest_ns,
                near,
            }
        });
        Checked {
            vm: self.vm.clone(),
            services: self.services.clone(),
            lacks: self.lacks.clone(),
            terms: terms.collect(),
            guest,
        }
    }
}

/// What was said of broken bounds.
#[derive(Debug, Default)]
pub struct News {
    /// By VM and term: how many were over as it was said last.
    said: BTreeMap<(String, String), u64>,
}

impl News {
    /// What is new of what was found now.
    pub fn of(&mut self, vms: &[Checked], unix_s: u64) -> Vec<Broken> {
        let mut news = Vec::new();
        for checked in vms {
            let broken = |term: &str, planned_ns, longest_ns, over, n| Broken {
                unix_s,
                vm: checked.vm.clone(),
                services: checked.services.clone(),
                term: term.to_owned(),
                planned_ns,
                longest_ns,
                over,
                n,
            };
            let terms = checked.terms.iter();
            let terms =
                terms.map(|it| broken(&it.term, it.planned_ns, it.longest_ns, it.over, it.n));
            let guest = checked.guest.iter();
            let guest = guest.map(|it| broken(GUESTS_DEADLINES, None, None, it.misses, it.jobs));
            news.extend(terms.chain(guest).filter(|it| self.is_new(it)));
        }
        news
    }

    fn is_new(&mut self, broken: &Broken) -> bool {
        let key = (broken.vm.clone(), broken.term.clone());
        let said = self.said.entry(key).or_default();
        if broken.over < *said {
            // Counted anew: another plan, or the guest has begun again.
            *said = 0;
        }
        let is_new = broken.over > 0 && broken.over >= 2 * *said;
        if is_new {
            *said = broken.over;
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn planned() -> Planned {
        Planned {
            vm: "web".to_owned(),
            services: vec!["http".to_owned()],
            lacks: None,
            allowed_ns: [Some(100), Some(1000), None, Some(50), Some(2000)],
        }
    }

    fn seen(n: u64, over: u64, longest_ns: u64) -> Seen {
        Seen {
            n,
            over,
            longest_ns,
        }
    }

    #[test]
    fn each_term_says_how_near_its_longest_request_came() {
        let counted = [
            seen(10, 0, 50),
            seen(9, 0, 900),
            seen(8, 0, 1),
            Seen::default(),
            seen(7, 1, 2500),
        ];
        let checked = planned().beside(&counted, None);
        let near: Vec<Option<f64>> = checked.terms.iter().map(|term| term.near).collect();
        assert_eq!(near, [Some(0.5), Some(0.9), None, None, Some(1.25)]);
        assert_eq!(checked.nearest().unwrap().term, TERMS[4]);
        assert!(
            checked.sentence().contains("125.0 %"),
            "{}",
            checked.sentence()
        );
        let none = planned().beside(&[Seen::default(); STAGES], None);
        assert!(none.sentence().ends_with("no request was followed yet"));
    }

    /// A plan of two services in one VM and one in another.
    const PLAN: &str = r#"
        [host]
        pcpus = 2
        scheduler = "pedf"
        [[vm]]
        name = "web"
        scheduler = "dm"
        period = "5ms"
        tasks = [{ name = "a", c = "1ms", t = "50ms" }, { name = "b", c = "2ms", t = "100ms" }]
        [[service]]
        name = "fast"
        vm = "web"
        task = "a"
        limit = "45ms"
        [[service]]
        name = "slow"
        vm = "web"
        task = "b"
        limit = "95ms"
    "#;

    #[test]
    fn of_several_services_of_a_vm_the_longest_counts() {
        let request = steadyvm_analysis::plan::file::parse(PLAN).unwrap();
        let report = steadyvm_analysis::plan::run(&request).unwrap();
        let bounds: Vec<u64> = (report.services.iter())
            .map(|it| it.bound.unwrap().unsigned_abs())
            .collect();
        let all = Planned::of(&report.services);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].services, ["fast", "slow"]);
        assert_eq!(all[0].allowed_ns[4], bounds.iter().copied().max());
        assert!(all[0].allowed_ns[4] > Some(bounds[0]), "{bounds:?}");
    }

    #[test]
    fn a_broken_bound_is_news_at_the_first_request_and_at_each_doubling() {
        let mut news = News::default();
        let mut said = Vec::new();
        for over in 0..=20 {
            let counted = [
                seen(100, over, 150),
                seen(1, 0, 0),
                seen(1, 0, 0),
                seen(1, 0, 0),
                seen(1, 0, 0),
            ];
            let found = news.of(&[planned().beside(&counted, None)], 7);
            assert!(
                found
                    .iter()
                    .all(|it| it.term == TERMS[0] && it.longest_ns == Some(150))
            );
            said.extend(found.iter().map(|it| it.over));
        }
        assert_eq!(said, [1, 2, 4, 8, 16]);
        // Another plan counts anew.
        let counted = [seen(3, 1, 150); STAGES];
        assert_eq!(
            news.of(&[planned().beside(&counted, None)], 8).len(),
            STAGES
        );
        let guest = Some(GuestReport { jobs: 9, misses: 2 });
        let found = news.of(&[planned().beside(&[Seen::default(); STAGES], guest)], 9);
        assert_eq!(found.len(), 1);
        assert_eq!((&*found[0].term, found[0].over), (GUESTS_DEADLINES, 2));
    }

    proptest! {
        /// However counts grow between looks, what is said last is at least half of what there is.
        #[test]
        fn no_growth_is_hidden_for_long(steps in prop::collection::vec(0_u64..1000, 1..50)) {
            let mut news = News::default();
            let (mut over, mut said) = (0, 0);
            for step in steps {
                over += step;
                let mut counted = [Seen::default(); STAGES];
                counted[1] = seen(over + 1, over, 2000);
                let found = news.of(&[planned().beside(&counted, None)], 0);
                said = found.first().map_or(said, |it| it.over);
                prop_assert!(over == 0 || 2 * said > over);
            }
        }
    }
}
