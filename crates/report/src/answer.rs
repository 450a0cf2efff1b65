//! What a page answers: its question, what was found, in one sentence made of the figures, and a picture.

use crate::picture::Picture;
use crate::text::capitalised;
use serde::Deserialize;
use steadyvm_stats::bootstrap::Ratio;

/// What a page begins with.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The page's title.
    pub question: String,
    /// What the figures say to it, the most important first.
    pub findings: Vec<Finding>,
    /// The figures that a reader sees first.
    pub picture: Picture,
}

/// What figures say.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Finding {
    /// One figure over another. Those over the same stand together.
    Ratio {
        /// Whose figure it is.
        of: String,
        /// What it is over, such as "`vanilla`'s p99 beside a full stream".
        over: String,
        /// `None` where it was not measured.
        ratio: Option<Over>,
    },
    /// How many there are of how many, such as jobs that are late. Those of the same things stand together.
    Count {
        /// Whose; empty where there is no other.
        of: String,
        /// What they are, in the plural: "jobs are late".
        what: String,
        /// How many.
        count: u64,
        /// Of how many.
        all: u64,
    },
    /// A figure, and the bound that it was to keep. Those of the same figure stand together.
    Bound {
        /// Whose; empty where there is no other.
        of: String,
        /// What it is, after the verb: "of a CPU is lost".
        figure: String,
        /// Its value, in words with the unit.
        words: String,
        /// The bound in words, such as "at most 50 ms", and whether it was kept, if there is one.
        bound: Option<(String, bool)>,
    },
    /// Statements of others, and how many of them the figures contradict.
    Statements {
        /// Whose.
        of: String,
        /// How many.
        all: usize,
        /// Those that are contradicted, a few words each; one alone is named.
        contradicted: Vec<String>,
    },
}

/// A ratio with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Over {
    /// What tables show of it.
    pub value: f64,
    /// The interval's ends; `None` where nothing shows how much it varies.
    pub low: Option<f64>,
    /// The high end.
    pub high: Option<f64>,
}

impl Over {
    /// Of tables that show the ratio itself.
    pub fn estimate(ratio: &Ratio) -> Self {
        Self {
            value: ratio.estimate,
            low: ratio.low,
            high: ratio.high,
        }
    }

    /// Of tables that show the median of the draws.
    pub fn median(ratio: &Ratio) -> Self {
        Self {
            value: ratio.median,
            ..Self::estimate(ratio)
        }
    }

    /// Whether the interval lies on one side of 1.
    fn is_told_apart(self) -> bool {
        self.low.is_some_and(|low| low > 1.0) || self.high.is_some_and(|high| high < 1.0)
    }

    /// `0.16 [0.12, 0.32]`.
    fn words(self) -> String {
        let end = |end: Option<f64>| end.map_or_else(|| "-".to_owned(), digits);
        format!(
            "{} [{}, {}]",
            digits(self.value),
            end(self.low),
            end(self.high)
        )
    }
}

impl Answer {
    /// What was found, as a sentence. It follows from the figures alone.
    pub fn in_short(&self) -> String {
        let mut clauses = Vec::new();
        let mut rest = &self.findings[..];
        while let Some(first) = rest.first() {
            let like = rest.iter().take_while(|it| it.stands_with(first)).count();
            let (these, others) = rest.split_at(like);
            clauses.push(clause(these));
            rest = others;
        }
        if clauses.is_empty() {
            clauses.push("nothing was measured".to_owned());
        }
        capitalised(&clauses.join("; ")) + "."
    }
}

impl Finding {
    fn stands_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ratio { over, .. }, Self::Ratio { over: other, .. }) => over == other,
            (Self::Count { what, .. }, Self::Count { what: other, .. }) => what == other,
            (Self::Bound { figure, .. }, Self::Bound { figure: other, .. }) => figure == other,
            (Self::Statements { of, .. }, Self::Statements { of: other, .. }) => of == other,
            _ => false,
        }
    }
}

/// Findings that stand together, the first of which says of which kind they are.
fn clause(findings: &[Finding]) -> String {
    match findings.first() {
        Some(Finding::Ratio { over, .. }) => ratios(over, findings),
        Some(Finding::Count { what, .. }) => counts(what, findings),
        Some(Finding::Bound { figure, .. }) => bounds(figure, findings),
        _ => statements(findings),
    }
}

fn ratios(over: &str, findings: &[Finding]) -> String {
    let (mut apart, mut alike, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for finding in findings {
        let Finding::Ratio { of, ratio, .. } = finding else {
            continue;
        };
        match ratio {
            None => missing.push(&**of),
            Some(ratio) if ratio.is_told_apart() => apart.push((&**of, ratio.words())),
            Some(_) => alike.push(&**of),
        }
    }
    let mut clauses = Vec::new();
    if let Some(((of, words), others)) = apart.split_first() {
        let others = others.iter().map(|(of, words)| format!("{of} {words}"));
        let first = format!("{of} has {words} of {over}");
        clauses.push(enumerated(std::iter::once(first).chain(others)));
    }
    let from = if apart.is_empty() { over } else { "it" };
    if !alike.is_empty() {
        let are = if alike.len() == 1 { "is" } else { "are" };
        clauses.push(format!(
            "{} {are} not told apart from {from}",
            enumerated(alike)
        ));
    }
    if !missing.is_empty() {
        let over = if clauses.is_empty() { over } else { "it" };
        let was = if missing.len() == 1 { "was" } else { "were" };
        let missing = enumerated(missing);
        clauses.push(format!("{missing} over {over} {was} not measured"));
    }
    clauses.join("; ")
}

/// Equal counts stand together, in the order of the first.
fn counts(what: &str, findings: &[Finding]) -> String {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for finding in findings {
        let Finding::Count { of, count, all, .. } = finding else {
            continue;
        };
        let words = match all {
            0 => "none was measured".to_owned(),
            all => format!("{count} of {all}"),
        };
        match groups.iter_mut().find(|(other, _)| *other == words) {
            Some((_, alike)) => alike.push(of),
            None => groups.push((words, vec![of])),
        }
    }
    let groups = groups.iter().map(|(words, alike)| {
        let alike = enumerated(alike.iter().filter(|of| !of.is_empty()));
        format!("{words}{}", with(&alike))
    });
    format!("{what}: {}", groups.collect::<Vec<_>>().join(", "))
}

fn bounds(figure: &str, findings: &[Finding]) -> String {
    let parts = findings.iter().filter_map(|finding| match finding {
        Finding::Bound {
            of, words, bound, ..
        } => Some((of, words, bound.as_ref())),
        _ => None,
    });
    let parts: Vec<_> = parts.collect();
    // One bound of all that have one is said once.
    let mut asked_of = parts.iter().filter_map(|(_, _, bound)| *bound);
    let first = asked_of.next();
    let shared = first.filter(|(first, _)| asked_of.all(|(asked, _)| asked == first));
    let asked = shared.map_or_else(String::new, |(asked, _)| format!(" (asked: {asked})"));
    let words = parts.iter().map(|(of, words, bound)| {
        let kept = match bound {
            None => String::new(),
            Some((asked, kept)) => {
                let verdict = if *kept { "kept" } else { "missed" };
                if shared.is_some() {
                    format!(", {verdict}")
                } else {
                    format!(" (asked: {asked}, {verdict})")
                }
            }
        };
        format!("{words}{}{kept}", with(of))
    });
    format!("{figure}{asked}: {}", enumerated(words))
}

/// Whose a figure is, unless there is no other.
fn with(of: &str) -> String {
    if of.is_empty() {
        String::new()
    } else {
        format!(" with {of}")
    }
}

fn statements(findings: &[Finding]) -> String {
    let words = findings.iter().filter_map(|finding| match finding {
        Finding::Statements { of, all: 0, .. } => Some(format!("no statement of {of} was tried")),
        Finding::Statements {
            of,
            all,
            contradicted,
        } => Some(match contradicted.len() {
            0 if *all == 1 => format!("the one statement of {of} holds"),
            0 => format!("all {all} statements of {of} hold"),
            1 if *all == 1 => format!("{of} is contradicted: {}", contradicted[0]),
            1 => format!(
                "of {all} statements of {of} 1 is contradicted: {}",
                contradicted[0]
            ),
            many => format!("{many} of {all} statements of {of} are contradicted"),
        }),
        _ => None,
    });
    words.collect::<Vec<_>>().join("; ")
}

/// Two digits at least.
fn digits(value: f64) -> String {
    match value.abs() {
        ..0.0995 => format!("{value:.3}"),
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// `a`, `a and b`, `a, b and c`.
fn enumerated(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let words: Vec<_> = words.into_iter().collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match &words[..] {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ratio(of: &str, interval: Option<[f64; 3]>) -> Finding {
        Finding::Ratio {
            of: format!("`{of}`"),
            over: "`vanilla`'s p99 beside a full stream".to_owned(),
            ratio: interval.map(|[value, low, high]| Over {
                value,
                low: Some(low),
                high: Some(high),
            }),
        }
    }

    fn in_short(findings: &[Finding]) -> String {
        let answer = Answer {
            question: "?".to_owned(),
            findings: findings.to_vec(),
            picture: Picture::default(),
        };
        answer.in_short()
    }

    #[test]
    fn rows_that_are_told_apart_have_their_ratios() {
        assert_eq!(
            in_short(&[
                ratio("preempt-rt", Some([0.16, 0.12, 0.32])),
                ratio("dedicated", Some([0.13, 0.091, 0.22])),
            ]),
            "`preempt-rt` has 0.16 [0.12, 0.32] of `vanilla`'s p99 beside a full stream and `dedicated` \
             0.13 [0.091, 0.22]."
        );
        assert_eq!(
            in_short(&[
                ratio("a", Some([1.6, 1.2, 3.2])),
                ratio("b", Some([1.0, 0.8, 1.2])),
                ratio("c", None),
            ]),
            "`a` has 1.60 [1.20, 3.20] of `vanilla`'s p99 beside a full stream; `b` is not told apart from it; \
             `c` over it was not measured."
        );
    }

    #[test]
    fn rows_whose_intervals_include_one_are_not_told_apart() {
        assert_eq!(
            in_short(&[
                ratio("a", Some([0.8, 0.5, 1.2])),
                ratio("b", Some([1.5, 0.5, 4.0])),
            ]),
            "`a` and `b` are not told apart from `vanilla`'s p99 beside a full stream."
        );
    }

    #[test]
    fn a_statement_that_figures_contradict_is_named() {
        let statements = |contradicted: &[&str]| Finding::Statements {
            of: "the paper".to_owned(),
            all: 3,
            contradicted: contradicted.iter().map(|it| (*it).to_owned()).collect(),
        };
        assert_eq!(
            in_short(&[statements(&["the order of servers"])]),
            "Of 3 statements of the paper 1 is contradicted: the order of servers."
        );
        assert_eq!(
            in_short(&[statements(&[])]),
            "All 3 statements of the paper hold."
        );
        let alone = Finding::Statements {
            of: "the paper".to_owned(),
            all: 1,
            contradicted: vec!["no job misses".to_owned()],
        };
        assert_eq!(
            in_short(&[alone]),
            "The paper is contradicted: no job misses."
        );
        let said = in_short(&[statements(&["a", "b"])]);
        assert_eq!(said, "2 of 3 statements of the paper are contradicted.");
    }

    #[test]
    fn counts_and_bounds_say_of_how_many_and_whether_they_were_kept() {
        let count = |of: &str, count, all| Finding::Count {
            of: of.to_owned(),
            what: "jobs late".to_owned(),
            count,
            all,
        };
        let bound = |words: &str, kept| Finding::Bound {
            of: "`ext`".to_owned(),
            figure: "CPU time lost".to_owned(),
            words: words.to_owned(),
            bound: Some(("at most 4 %".to_owned(), kept)),
        };
        assert_eq!(
            in_short(&[count("`a`", 3, 10), count("`b`", 0, 0), bound("6 %", false)]),
            "Jobs late: 3 of 10 with `a`, none was measured with `b`; CPU time lost (asked: at most \
             4 %): 6 % with `ext`, missed."
        );
        assert!(in_short(&[bound("3 %", true)]).ends_with("3 % with `ext`, kept."));
        let alike = [
            count("`a`", 0, 9),
            count("`b`", 5, 9),
            count("`c`", 0, 9),
            count("`d`", 0, 9),
        ];
        assert_eq!(
            in_short(&alike),
            "Jobs late: 0 of 9 with `a`, `c` and `d`, 5 of 9 with `b`."
        );
        let unasked = Finding::Bound {
            of: "`stock`".to_owned(),
            figure: "CPU time lost".to_owned(),
            words: "9 %".to_owned(),
            bound: None,
        };
        assert_eq!(
            in_short(&[unasked, bound("3 %", true)]),
            "CPU time lost (asked: at most 4 %): 9 % with `stock` and 3 % with `ext`, kept."
        );
    }

    #[test]
    fn where_nothing_was_measured_it_says_so() {
        assert_eq!(in_short(&[]), "Nothing was measured.");
        let said = in_short(&[ratio("a", None)]);
        assert_eq!(
            said,
            "`a` over `vanilla`'s p99 beside a full stream was not measured."
        );
    }

    proptest! {
        #[test]
        fn the_sentence_tells_apart_exactly_where_the_interval_excludes_one(
            median in 0.001_f64..1000.0, low in 0.001_f64..1000.0, high in 0.001_f64..1000.0,
        ) {
            let (low, high) = (low.min(high), low.max(high));
            let said = in_short(&[ratio("a", Some([median, low, high]))]);
            let includes_one = (low..=high).contains(&1.0);
            prop_assert_eq!(said.contains("not told apart"), includes_one, "{}", said);
            prop_assert_eq!(said.contains("`a` has"), !includes_one);
            prop_assert!(said.ends_with('.') && !said.contains('\n'));
        }
    }
}
