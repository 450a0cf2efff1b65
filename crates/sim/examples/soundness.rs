//! Random plan files that the plan accepts, played: prints each that is late, made small.
//!
//! `cargo run --release -p steadyvm-sim --example soundness -- [--files N] [--minutes N] [--seed N] [--most N] [--free] [--less]`; `--show N` prints a file
//!
//! `--free`: no files whose switches cost time. `--less`: the counter-check; one VCPU has a unit less than is installed. Without `--seed`, the time is the seed.
//! Exit codes: 0 none was late (with `--less`: some were), 1 otherwise, 2 wrong use.

use std::{
    env,
    process::ExitCode,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use steadyvm_sim::soundness::{Search, Tally, search};

fn arguments() -> Option<Search> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let mut found = Search::new(since.as_secs() << 24, u64::MAX);
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--less" {
            found.less = true;
            found.most = usize::MAX;
            continue;
        }
        if word == "--free" {
            found.costs = false;
            continue;
        }
        let number: u64 = words.next()?.parse().ok()?;
        match word.as_str() {
            "--files" => found.files = number,
            "--minutes" => found.until = Some(Instant::now() + Duration::from_secs(60 * number)),
            "--seed" => found.seed = number,
            "--show" => {
                println!("{}", steadyvm_sim::soundness::file(number)?);
                std::process::exit(0);
            }
            "--most" => found.most = usize::try_from(number).ok()?,
            _ => return None,
        }
    }
    Some(found)
}

fn main() -> ExitCode {
    let Some(wanted) = arguments() else {
        eprintln!(
            "soundness: give [--files N] [--minutes N] [--seed N] [--most N] [--free] [--less], each N a number"
        );
        return ExitCode::from(2);
    };
    let start = Instant::now();
    let (mut told, mut shown) = (start, 0);
    let mut progress = |tally: &Tally| {
        for found in tally.found.iter().skip(shown).filter(|_| !wanted.less) {
            println!(
                "# File {}: accepted, but {} jobs are late.\n{}\n# simulate.toml\n{}\n",
                found.number, found.late, found.toml, found.simulate
            );
        }
        shown = tally.found.len();
        if told.elapsed() >= Duration::from_secs(30) {
            told = Instant::now();
            eprintln!(
                "{} s: {} accepted files of {} drawn, {} late; seeds {} to {}",
                start.elapsed().as_secs(),
                tally.accepted,
                tally.drawn,
                tally.late,
                wanted.seed,
                wanted.seed + tally.drawn - 1
            );
        }
    };
    let tally = search(&wanted, &mut progress);
    println!("| files with | accepted | late |\n|---|---|---|");
    for (kind, (accepted, late)) in &tally.kinds {
        println!("| {kind} | {accepted} | {late} |");
    }
    println!(
        "{} accepted files of {} drawn, {} plays, {} jobs, {} files late; seeds {} to {}; {} s",
        tally.accepted,
        tally.drawn,
        tally.plays,
        tally.jobs,
        tally.late,
        wanted.seed,
        wanted.seed + tally.drawn.saturating_sub(1),
        start.elapsed().as_secs()
    );
    ExitCode::from(u8::from((tally.late > 0) != wanted.less))
}
