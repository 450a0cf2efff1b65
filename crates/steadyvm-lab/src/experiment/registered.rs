//! The verbs of `steadyvm-lab experiment` that the registry of experiments has.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{ArgMatches, Args as _, Command, FromArgMatches, Subcommand};
use steadyvm_experiment::engine::latency::{assemble, page, samples_table};
use steadyvm_experiment::experiment::{Experiment, Options, Rows, Setting};
use steadyvm_experiment::registry::EXPERIMENTS;
use steadyvm_experiment::testbed::ComparedMethod;
use steadyvm_lab::artifact::UserSpace;
use steadyvm_lab::laboratory::HostKernel;
use steadyvm_stats::bootstrap::BootstrapOptions;

use super::run::{Measured, Output, Run};
use crate::kernel::InsteadArgs;
use crate::methods::without_repeats;
use steadyvm_cli::markdown::MarkdownArgs;

/// The options of experiments that compare methods.
#[derive(Debug, clap::Args)]
struct MethodArgs {
    /// Methods to measure, as in `steadyvm-lab compare`; ratios are to the first.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "preempt-rt,dedicated,rt-sockets,outsourcing"
    )]
    methods: Vec<ComparedMethod>,
    #[command(flatten)]
    kernel: InsteadArgs,
    /// Seed of the requests' schedules.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The options of those that compare settings.
#[derive(Debug, clap::Args)]
struct SettingArgs {
    /// Settings to measure; ratios are to the first [default: all].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    settings: Vec<String>,
    /// Seed of the requests' schedules.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The options of every such experiment.
#[derive(Debug, clap::Args)]
struct Args {
    /// Counted requests per row and condition, over all rounds.
    #[arg(long, value_name = "N", default_value_t = 2400, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    samples: u64,
    /// Rounds.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Where results.json, report.html and the other files go; made if it does not exist [default:
    /// out/NAME].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print results.json instead of the tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    markdown: MarkdownArgs,
}

/// An experiment of the registry with its options.
#[derive(Debug)]
pub struct Registered {
    experiment: &'static Experiment,
    compared: Compared,
    args: Args,
}

/// What an experiment compares.
#[derive(Debug)]
enum Compared {
    Methods(MethodArgs),
    Settings(&'static [Setting], SettingArgs),
    Own { kernel: HostKernel },
}

impl Compared {
    fn of(experiment: &Experiment, matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(match experiment.rows {
            Rows::Methods => Self::Methods(MethodArgs::from_arg_matches(matches)?),
            Rows::Settings(all) => Self::Settings(all, SettingArgs::from_arg_matches(matches)?),
            Rows::Own { kernel, .. } => Self::Own { kernel },
        })
    }

    /// The verb with the options of what is compared, and those of all.
    fn augment(experiment: &Experiment, verb: Command) -> Command {
        match experiment.rows {
            Rows::Methods => Args::augment_args(MethodArgs::augment_args(verb)),
            Rows::Settings(all) => {
                let names = PossibleValuesParser::new(all.iter().map(|it| it.name));
                let verb = SettingArgs::augment_args(verb);
                Args::augment_args(verb.mut_arg("settings", |it| it.value_parser(names)))
            }
            Rows::Own { samples, .. } => {
                Args::augment_args(verb).mut_arg("samples", |it| it.default_value(samples))
            }
        }
    }

    /// The kernels of the hosts, and the one that stands in for all of them.
    fn kernels(&self, options: &Options) -> Result<(Vec<HostKernel>, Option<HostKernel>)> {
        Ok(match self {
            Self::Methods(it) => (it.kernel.wanted_by(&options.methods)?, it.kernel.kernel()),
            Self::Settings(..) => (options.settings.iter().map(|it| it.kernel).collect(), None),
            Self::Own { kernel, .. } => (vec![*kernel], None),
        })
    }

    fn seed(&self) -> Option<u64> {
        match self {
            Self::Methods(it) => Some(it.seed),
            Self::Settings(_, it) => Some(it.seed),
            Self::Own { .. } => None,
        }
    }
}

/// The settings of these names, which the command line has checked, in their order; without a name all.
fn chosen(all: &[Setting], names: &[String]) -> Vec<Setting> {
    if names.is_empty() {
        return all.to_vec();
    }
    let find = |name: &String| all.iter().find(|it| it.name == name);
    let found: Vec<Setting> = names.iter().filter_map(find).copied().collect();
    without_repeats(&found)
}

impl FromArgMatches for Registered {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let verb = matches.subcommand();
        let found = verb.and_then(|(name, matches)| {
            let mut experiments = EXPERIMENTS.iter();
            let experiment = experiments.find(|it| it.words.name == name)?;
            Some((*experiment, matches))
        });
        let missing = clap::error::ErrorKind::MissingSubcommand;
        let (experiment, matches) = found.ok_or_else(|| clap::Error::new(missing))?;
        Ok(Self {
            experiment,
            compared: Compared::of(experiment, matches)?,
            args: Args::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Registered {
    fn augment_subcommands(command: Command) -> Command {
        EXPERIMENTS.iter().fold(command, |command, experiment| {
            let verb = Command::new(experiment.words.name);
            // The options' own description would take the experiment's place.
            let verb = Compared::augment(experiment, verb);
            command.subcommand(verb.about(experiment.about))
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        EXPERIMENTS.iter().any(|it| it.words.name == name)
    }
}

impl Registered {
    /// Measures and shows it.
    pub fn run(&self) -> Result<()> {
        let (experiment, args) = (self.experiment, &self.args);
        let words = &experiment.words;
        let (methods, settings) = match &self.compared {
            Compared::Methods(compared) => (without_repeats(&compared.methods), Vec::new()),
            Compared::Settings(all, compared) => (Vec::new(), chosen(all, &compared.settings)),
            Compared::Own { .. } => (Vec::new(), Vec::new()),
        };
        let options = Options {
            methods,
            settings,
            samples: args.samples,
            rounds: args.rounds,
            seed: self.compared.seed().unwrap_or(1),
        };
        (experiment.check)(&options)?;
        let (wanted, instead) = self.compared.kernels(&options)?;
        let out = PathBuf::from("out").join(words.name);
        let out = args.out.clone().unwrap_or(out);
        let output = Output {
            out: &out,
            json: args.json,
            markdown: &args.markdown,
        };
        let mut run = Run::open(output, &wanted, instead)?;
        if experiment.user_space != UserSpace::Lab {
            run = run.with_user_space(experiment.user_space)?;
        }
        let measured = (experiment.run)(&run.laboratory, &options, &run.display)?;
        let bootstrap = BootstrapOptions::default();
        let mut record = assemble(words.name, &measured.latencies, bootstrap);
        record.figures.extend(measured.figures);
        record.notes = measured.notes;
        let seed = self.compared.seed();
        let seed = seed.map(|seed| ("seed".to_owned(), seed.into()));
        let samples = samples_table(&measured.latencies);
        let command = format!("steadyvm-lab experiment {}", words.name);
        let tables = measured.tables;
        let measured = Measured {
            command: &command,
            record,
            kernels: kernels(&run, &self.compared, &options),
            set: seed.into_iter().collect(),
            facts: Vec::new(),
            tables: vec![("samples.csv".to_owned(), samples)],
            dropped_rounds: measured.dropped_rounds,
            disturbance: measured.disturbance,
        };
        run.finish(measured, |record, about| {
            page(record, words, tables).shown(about)
        })
    }
}

fn kernels(run: &Run, compared: &Compared, options: &Options) -> BTreeMap<String, String> {
    let title = |kernel| run.kernel_title(kernel);
    let of = |it: &ComparedMethod| {
        let kernel = run.laboratory.in_place_of(it.kernel);
        (it.to_string(), title(kernel))
    };
    let mut kernels: BTreeMap<String, String> = options.methods.iter().map(of).collect();
    let settings = options.settings.iter();
    kernels.extend(settings.map(|it| (it.name.to_owned(), title(it.kernel))));
    if let Compared::Own { kernel, .. } = compared {
        kernels.insert("hosts".to_owned(), title(*kernel));
    }
    if !matches!(compared, Compared::Settings(..)) {
        kernels.insert("guests".to_owned(), title(HostKernel::V6_12));
    }
    kernels
}
