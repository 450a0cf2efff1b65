//! An experiment without the rest of steadyvm: `cargo run --release -p steadyvm-sim --example experiment -- NAME [SEED]`

use std::{env, process::ExitCode};

use steadyvm_sim::experiments::Experiment;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let seed = words.get(1).map_or(Some(1), |word| word.parse().ok());
    let experiment = words.first().and_then(|name| Experiment::named(name));
    let (Some(experiment), Some(seed)) = (experiment, seed) else {
        eprintln!(
            "experiment: give NAME [SEED]; NAME is one of {}",
            Experiment::ALL.map(|e| e.name).join(", ")
        );
        return ExitCode::from(2);
    };
    let found = experiment.run(seed);
    let short = found.answer.in_short();
    print!("{short}\n\n{}\n\n{}", found.introduction, found.tables);
    ExitCode::SUCCESS
}
