//! The page of simulated clusters: `cargo run --release -p steadyvm-sim --example cluster_page docs/results/cluster.md`.
//!
//! Takes some minutes. Exit code 1 if the file cannot be written.

use std::{env, fmt::Write as _, io, path::Path, time::Instant};

use steadyvm_config::PlacementPolicy;
use steadyvm_report::{
    Answer, Finding, Over, Picture,
    picture::{Bar, Group},
    results_page::{self, Details},
};
use steadyvm_sim::cluster::{FIGURES, Outcome, Scenario, Study, Trace, replay, study};
use steadyvm_stats::bootstrap::{BootstrapOptions, draw_rates, ratio};

const COMMAND: &str =
    "cargo run --release -p steadyvm-sim --example cluster_page docs/results/cluster.md";
const DAY: &str = include_str!("../../../examples/cluster-day.toml");
const DISSERTATION: &str = include_str!("../../../examples/dissertation-cluster.toml");
const THREADS: usize = 2;

fn main() -> io::Result<()> {
    let file = env::args().nth(1);
    let file = file.ok_or_else(|| io::Error::other("give the page's file"))?;
    let day = Scenario::parse("cluster-day.toml", DAY).map_err(io::Error::other)?;
    let paper =
        Scenario::parse("dissertation-cluster.toml", DISSERTATION).map_err(io::Error::other)?;
    let speed = speed(&day).map_err(io::Error::other)?;
    let found = study(&day, THREADS).map_err(io::Error::other)?;
    let seven = study(&paper, 1).map_err(io::Error::other)?;
    let details = Details {
        command: COMMAND.to_owned(),
        warning: "A simulation: arrivals and lifetimes are drawn, by rates that are made up (examples/cluster-day.toml). \
                  All policies see the same."
            .to_owned(),
        tables: tables(&day, &found) + &placements(&paper, &seven) + &speed,
        facts: Vec::new(),
    };
    results_page::write(Path::new(&file), &answer(&found, &seven), &details)
}

/// A figure of a policy over that of `nova`, with the interval over seeds.
fn over(of: &[Outcome], to: &[Outcome], figure: fn(&Outcome) -> f64) -> Option<Over> {
    let values =
        |runs: &[Outcome]| -> Vec<[f64; 1]> { runs.iter().map(|run| [figure(run)]).collect() };
    let (of, to) = (values(of), values(to));
    let draw = |values: &[[f64; 1]], stream| {
        let rounds: Vec<&[f64]> = values.iter().map(|value| &value[..]).collect();
        draw_rates(&rounds, BootstrapOptions::default(), stream)
    };
    ratio(&draw(&of, 1), &draw(&to, 2), 0)
        .as_ref()
        .map(Over::estimate)
}

fn answer(found: &Study, seven: &Study) -> Answer {
    let nova = (found.policies.iter()).find(|it| it.policy == PlacementPolicy::Nova);
    let admitted = |run: &Outcome| run.admitted_rt as f64;
    let mut findings: Vec<Finding> = (found.policies.iter())
        // What counts no budget admits all.
        .filter(|it| ![PlacementPolicy::Nova, PlacementPolicy::NovaStock].contains(&it.policy))
        .map(|it| Finding::Ratio {
            of: format!("`{}`", it.policy.word()),
            over: "the real-time VMs that `nova` admits".to_owned(),
            ratio: nova.and_then(|nova| over(&it.runs, &nova.runs, admitted)),
        })
        .collect();
    let paper = seven.policies.first().and_then(|it| it.runs.first());
    if let Some(paper) = paper {
        findings.push(Finding::Count {
            of: "`nova`".to_owned(),
            what: "real-time VMs that the dissertation's seven hosts take".to_owned(),
            count: paper.admitted_rt,
            all: paper.admitted_rt + paper.rejected_rt,
        });
    }
    let bars = (found.policies.iter()).map(|it| {
        let mean = FIGURES[0].mean(&it.runs).map(|mean| mean.mean);
        Bar::new(it.policy.word(), mean, |value| format!("{value:.0}"))
    });
    Answer {
        question: "Which policy places most real-time VMs on a thousand hosts?".to_owned(),
        findings,
        picture: Picture {
            title: "Real-time VMs admitted in a day".to_owned(),
            groups: vec![Group {
                name: "1,000 hosts".to_owned(),
                bars: bars.collect(),
            }],
        },
    }
}

fn tables(day: &Scenario, found: &Study) -> String {
    let mut text = format!(
        "{} hosts, {} s, n = {} seeds from {}; mean [95 % interval, Student's].\n\n| |",
        day.hosts.len(),
        day.length_ns / 1_000_000_000,
        day.seeds,
        day.seed
    );
    for it in &found.policies {
        // Writing to a string does not fail.
        let _ = write!(text, " {} |", it.policy.word());
    }
    text += "\n|---|";
    text += &"---|".repeat(found.policies.len());
    text.push('\n');
    for figure in FIGURES {
        let _ = write!(text, "| {} |", figure.name);
        for it in &found.policies {
            let _ = write!(text, " {} |", figure.words(&it.runs));
        }
        text.push('\n');
    }
    text
}

fn placements(paper: &Scenario, seven: &Study) -> String {
    let mut text = "\n## The dissertation's seven hosts\n\nSection 4.3.3, the VMs of seed 53 (examples/dissertation-cluster.toml). \
                    [A real Nova](openstack.md) placed the same VMs on the same hosts under RT-OpenStack.\n\n\
                    | policy | host | VMs |\n|---|---|---|\n"
        .to_owned();
    for it in &seven.policies {
        for (&kind, vms) in paper
            .hosts
            .iter()
            .zip(it.runs.iter().flat_map(|run| &run.placement))
        {
            let name = |&vm: &u32| {
                let flavour = usize::from(seven.first_flavours[vm as usize]);
                paper.flavours[flavour].name.as_str()
            };
            let names: Vec<&str> = vms.iter().map(name).collect();
            let host = &paper.kinds[kind].name;
            let _ = writeln!(
                text,
                "| {} | {host} | {} |",
                it.policy.word(),
                names.join(", ")
            );
        }
    }
    text
}

/// One run of each policy, one at a time.
fn speed(day: &Scenario) -> Result<String, steadyvm_sim::cluster::trace::TooManyEvents> {
    let mut text = "\n## Speed\n\nOne run of the day on one CPU, n = 1, beside other work on the machine. Asked: 10 million \
                    events per minute. A question is one to the analysis, and new is one whose answer was not known.\n\n\
                    | | events | seconds | million events per minute | questions | new |\n|---|---|---|---|---|---|\n"
        .to_owned();
    let began = Instant::now();
    let trace = Trace::draw(day, day.seed)?;
    let drawn = began.elapsed().as_secs_f64();
    let _ = writeln!(
        text,
        "| drawing | {} | {drawn:.2} | | | |",
        trace.events.len()
    );
    for &policy in &day.policies {
        let began = Instant::now();
        let run = replay(day, &trace, policy);
        let seconds = began.elapsed().as_secs_f64();
        let rate = run.events as f64 / seconds * 60.0 / 1e6;
        let _ = writeln!(
            text,
            "| {} | {} | {seconds:.2} | {rate:.1} | {} | {} |",
            policy.word(),
            run.events,
            run.questions,
            run.analyses
        );
    }
    Ok(text)
}
