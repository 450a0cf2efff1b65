//! `steadyvm-lab compare`: the main job.

use crate::experiment::run::{Measured, Output, Run};
use crate::kernel::InsteadArgs;
use crate::methods::without_repeats;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use steadyvm_cli::markdown::MarkdownArgs;
use steadyvm_experiment::compare::{self, Options, assemble};
use steadyvm_experiment::compare::{price, report, table, targets};
use steadyvm_experiment::engine::Shown;
use steadyvm_experiment::engine::results::Settings;
use steadyvm_experiment::testbed::{ComparedMethod, Service};
use steadyvm_lab::laboratory::HostKernel;
use steadyvm_stats::bootstrap::BootstrapOptions;

/// Compare how well host methods hold a service's latency next to bulk traffic.
///
/// The lab emulates a host with real kernels, KVM and two guests. One guest runs a latency-critical UDP service (NetRT),
/// the other receives a TCP stream (NetStream). With --service host the host itself receives both. Each method has a
/// host of its own. Each round measures three phases on each host in turn: NetRT alone, NetRT beside NetStream at full
/// speed, and NetRT beside NetStream at one rate that all methods can carry.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Methods to compare; ratios are of each to those before it.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "vanilla,preempt-rt,dedicated",
        long_help = methods_help()
    )]
    methods: Vec<ComparedMethod>,
    /// Where both loads are received.
    #[arg(long, value_enum, default_value_t = Receiver::Vm)]
    service: Receiver,
    /// Number of TCP streams side by side.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=128))]
    streams: u32,
    /// Rate of all streams together in the equal-rate phase, as goodput.
    ///
    /// Default: 0.9 of the slowest method's full speed in the first round. The table shows the rate that each method
    /// carried.
    #[arg(long, value_name = "MBIT_PER_S")]
    equal_rate: Option<f64>,
    /// Do not shorten the fair server's slices, as the option of steadyvm apply --method.
    #[arg(long)]
    keep_fair_server: bool,
    /// Counted requests per method and phase, over all rounds.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    samples: u64,
    /// Rounds; more rounds narrow the intervals more than more samples do.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Boot every host so many times and spread the rounds over the boots, since boots differ.
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    boots: u64,
    /// Measure every phase once more with `steadyvm explain --receive-path` in the host, and tell the cost of the guest's exits by
    /// reason.
    ///
    /// It adds the time from hard interrupt to wake-up, and a file METHOD.PHASE.ROUND.json with its causes.
    #[arg(long)]
    receive_path: bool,
    #[command(flatten)]
    kernel: InsteadArgs,
    /// More words for the command line of the hosts' kernels, such as "nosmt mitigations=off".
    #[arg(long, value_name = "WORDS", default_value = "")]
    kernel_words: String,
    /// Seed of the request schedules.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where results.json, report.html and the other files go; made if it does not exist.
    #[arg(long, value_name = "DIR", default_value = "out/compare")]
    out: PathBuf,
    /// Print results.json instead of the table, and no interim tables.
    ///
    /// Without it, a table of the rounds so far is printed on standard error after the first round, and
    /// whenever the rounds have doubled.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    markdown: MarkdownArgs,
}

/// What there is to compare, as the table of methods has it.
fn methods_help() -> String {
    format!(
        "Methods to compare; ratios are of each to those before it.\n\n\
         METHOD@KERNEL is a method on a kernel of your choice, such as preempt-rt@7.3-rt beside preempt-rt@6.12-rt.\n\n{}",
        steadyvm_methods::help()
    )
}

/// Where both loads are received, as the command line says it.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Receiver {
    /// NetRT and NetStream in a VM each.
    Vm,
    /// Both by processes of the host, without VMs: the host's receive path alone.
    Host,
    /// NetRT by a process in a network namespace behind a veth and a bridge, NetStream by the host, without VMs.
    Container,
}

impl From<Receiver> for Service {
    fn from(receiver: Receiver) -> Self {
        match receiver {
            Receiver::Vm => Self::Vm,
            Receiver::Host => Self::Host,
            Receiver::Container => Self::Container,
        }
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let options = Options {
        methods: without_repeats(&args.methods),
        service: args.service.into(),
        keep_fair_server: args.keep_fair_server,
        samples: args.samples,
        rounds: args.rounds,
        boots: args.boots,
        receive_path: args.receive_path,
        streams: args.streams,
        equal_rate_mbit_per_s: args.equal_rate,
        interim: !args.json,
        seed: args.seed,
    };
    options.check()?;
    let wanted = args.kernel.wanted_by(&options.methods)?;
    let output = Output {
        out: &args.out,
        json: args.json,
        markdown: &args.markdown,
    };
    let mut run = Run::open(output, &wanted, args.kernel.kernel())?;
    let words = &mut run.laboratory.kernel_words;
    words.clone_from(&args.kernel_words);
    let measured = compare::run(&run.laboratory, &options, &run.display)?;
    let mut record = assemble(&measured.data, BootstrapOptions::default());
    let about_methods = options.methods.iter().filter_map(|method| method.note());
    record.notes.extend(about_methods);
    let mut tables = compare::tables(&measured.data)?;
    tables.extend(compare::traced_paths(&measured.data));
    let boots = ("Boots of each host".to_owned(), options.boots.to_string());
    let measured = Measured {
        command: "steadyvm-lab compare",
        record,
        kernels: kernels(&run, &options),
        set: set(&options, measured.equal_rate_mbit_per_s)?,
        facts: vec![boots],
        tables,
        dropped_rounds: measured.dropped_rounds,
        disturbance: measured.disturbance,
    };
    run.finish(measured, |record, about| Shown {
        text: table::render(record)
            + &targets::table(record, &options.methods)
            + &price::table(&options.methods),
        html: report::render(record, about),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What was set, for meta.json; `equal_rate` was asked for, or the first round found it.
fn set(options: &Options, equal_rate: Option<f64>) -> Result<Settings> {
    Ok([
        ("service", serde_json::to_value(options.service)?),
        ("boots", options.boots.into()),
        ("streams", options.streams.into()),
        ("seed", options.seed.into()),
        ("equal_rate_mbit_per_s", serde_json::to_value(equal_rate)?),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into())
}

fn kernels(run: &Run, options: &Options) -> BTreeMap<String, String> {
    let of = |method: &ComparedMethod| {
        let kernel = run.laboratory.in_place_of(method.kernel);
        (method.to_string(), run.kernel_title(kernel))
    };
    let mut kernels: BTreeMap<String, String> = options.methods.iter().map(of).collect();
    if options.service == Service::Vm {
        let guests = run.kernel_title(HostKernel::OF_GUESTS);
        kernels.insert("guests".to_owned(), guests);
    }
    kernels
}
