//! `steadyvm-lab experiment rtca`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use steadyvm_experiment::rtca::{self, Configuration, ENDPOINTS, Options};
use steadyvm_experiment::testbed::Endpoints;
use steadyvm_lab::laboratory::HostKernel;
use steadyvm_stats::bootstrap::BootstrapOptions;

use super::run::{Measured, Output, Run};
use crate::kernel::InsteadArgs;
use crate::methods::without_repeats;
use steadyvm_cli::markdown::MarkdownArgs;
use steadyvm_experiment::engine::Shown;

/// The experiment's options.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Methods: METHOD is the plain path, METHOD:BATCH takes at most BATCH packets (1 to 64) of one endpoint at a time.
    #[arg(
        long,
        value_name = "METHOD[:BATCH]",
        value_delimiter = ',',
        default_value = "vanilla,preempt-rt,rt-poll-list:1,rt-poll-list:64"
    )]
    methods: Vec<Configuration>,
    /// What the packets go between.
    #[arg(long, value_enum, default_value_t = Between::Vms)]
    endpoints: Between,
    #[command(flatten)]
    kernel: InsteadArgs,
    /// Counted round trips per method and level of interference, over all rounds.
    #[arg(long, value_name = "N", default_value_t = 900, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    samples: u64,
    /// Rounds.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// How long each stream flows, in seconds.
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    stream_s: u32,
    /// Seed of the requests' schedules.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where results.json, report.html and the other files go; made if it does not exist.
    #[arg(long, value_name = "DIR", default_value = "out/rtca")]
    out: PathBuf,
    /// Print results.json instead of the table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    markdown: MarkdownArgs,
}

/// What the packets go between, as the command line says it.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Between {
    /// VMs with virtio-net over vhost-net, a tap each on one bridge.
    Vms,
    /// Processes of the host in network namespaces, a pair of veth devices each on one bridge.
    Namespaces,
}

impl From<Between> for Endpoints {
    fn from(between: Between) -> Self {
        match between {
            Between::Vms => Self::Vms,
            Between::Namespaces => Self::Namespaces,
        }
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let options = Options {
        configurations: without_repeats(&args.methods),
        endpoints: args.endpoints.into(),
        samples: args.samples,
        rounds: args.rounds,
        stream_s: args.stream_s,
        seed: args.seed,
    };
    options.check()?;
    let own = |it: &Configuration| (it.method, it.method.row().kernel);
    let methods = options.configurations.iter().map(own);
    let wanted = args.kernel.wanted(methods)?;
    let output = Output {
        out: &args.out,
        json: args.json,
        markdown: &args.markdown,
    };
    let run = Run::open(output, &wanted, args.kernel.kernel())?;
    let measured = rtca::run(&run.laboratory, &options, &run.display)?;
    let bootstrap = BootstrapOptions::default();
    let measured = Measured {
        command: "steadyvm-lab experiment rtca",
        record: rtca::assemble(&measured.data, options.endpoints, bootstrap),
        kernels: kernels(&run, &options),
        set: [
            (ENDPOINTS.to_owned(), options.endpoints.key().into()),
            ("seed".to_owned(), options.seed.into()),
        ]
        .into(),
        facts: Vec::new(),
        tables: vec![(
            "samples.csv".to_owned(),
            rtca::samples_table(&measured.data),
        )],
        dropped_rounds: measured.dropped_rounds,
        disturbance: measured.disturbance,
    };
    run.finish(measured, |record, about| Shown {
        text: rtca::render(record),
        html: rtca::page(record).html(about),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn kernels(run: &Run, options: &Options) -> BTreeMap<String, String> {
    let of = |it: &Configuration| {
        let kernel = run.laboratory.kernel_of(it.method);
        (it.to_string(), run.kernel_title(kernel))
    };
    let mut kernels: BTreeMap<String, String> = options.configurations.iter().map(of).collect();
    if options.endpoints == Endpoints::Vms {
        let guests = run.kernel_title(HostKernel::V6_12);
        kernels.insert("guests".to_owned(), guests);
    }
    kernels
}
