//! Random systems that the analysis accepts, simulated: stops at the first that is late, made small.
//!
//! `cargo run --release -p steadyvm-sim --example soundness -- [SYSTEMS] [SEED] [SERVER...]`
//!
//! Exit codes: 0 none was late, 1 one was, 2 wrong use.

use std::{env, process::ExitCode, time::Instant};

use steadyvm_sim::soundness::{Space, check};

const SERVERS: [&str; 4] = ["deferrable", "periodic", "sporadic", "cbs"];

fn main() -> ExitCode {
    let mut words = env::args().skip(1);
    let mut number = |otherwise: u64| {
        words
            .next()
            .map_or(Some(otherwise), |word| word.parse().ok())
    };
    let (Some(systems), Some(seed)) = (number(1_000_000), number(1)) else {
        eprintln!("soundness: give [SYSTEMS] [SEED] [SERVER...], the first two as numbers");
        return ExitCode::from(2);
    };
    let mut space = Space::default();
    let servers: Vec<&'static str> = words
        .filter_map(|word| SERVERS.into_iter().find(|&server| server == word))
        .collect();
    if !servers.is_empty() {
        space.servers = servers;
    }
    // Ten reports on the way.
    let (start, mut done, mut drawn, mut jobs, mut events) = (Instant::now(), 0, 0, 0, 0);
    while done < systems {
        let part = systems.div_ceil(10).min(systems - done);
        match check(&space, part, seed.wrapping_add(drawn)) {
            Ok(tally) => {
                done += tally.accepted;
                drawn += tally.drawn;
                jobs += tally.jobs;
                events += tally.events;
                eprintln!(
                    "{done} accepted systems of {drawn}: {jobs} jobs, none late; {:.0} s",
                    start.elapsed().as_secs_f64()
                );
            }
            Err(found) => {
                println!(
                    "# System {}: accepted, but {} jobs are late.\n{}",
                    found.number, found.late, found.toml
                );
                return ExitCode::from(1);
            }
        }
    }
    println!(
        "{done} accepted systems of {drawn} drawn (servers {}), seed {seed}: {jobs} jobs, {events} events, none late",
        space.servers.join(", ")
    );
    ExitCode::SUCCESS
}
