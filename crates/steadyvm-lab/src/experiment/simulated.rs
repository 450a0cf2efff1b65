//! `steadyvm-lab experiment simulated`: figures of the RT-Xen dissertation, of the simulator.

use std::path::PathBuf;

use anyhow::Result;
use steadyvm_cli::machine::command_line;
use steadyvm_cli::{markdown, output};
use steadyvm_fault::Fault;
use steadyvm_sim::experiments::Experiment;

/// What to make.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The figures: `list` says what there is.
    name: String,
    /// Seed of all that is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the page as Markdown to this file, and its picture to pictures/NAME.svg beside it.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Runs the experiment.
pub fn run(args: &Args) -> Result<()> {
    let list = || -> String {
        let lines = Experiment::ALL
            .map(|experiment| format!("{}: {}\n", experiment.name, experiment.figures));
        lines.concat()
    };
    if args.name == "list" {
        return output::print(&list());
    }
    let experiment = Experiment::named(&args.name).ok_or_else(|| {
        let what = format!("no experiment is called \"{}\"", args.name);
        Fault::input(what, format!("there are:\n{}", list()))
    })?;
    let found = experiment.run(args.seed);
    let Some(page) = &args.markdown else {
        let short = found.answer.in_short();
        return output::print(&format!(
            "{short}\n\n{}\n\n{}",
            found.introduction, found.tables
        ));
    };
    let command = ("Command".to_owned(), command_line("steadyvm-lab").join(" "));
    markdown::write_page(
        page,
        &found.answer,
        &found.introduction,
        vec![command],
        &found.tables,
    )
}
