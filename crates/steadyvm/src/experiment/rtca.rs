//! `steadyvm lab experiment rtca`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use steadyvm_experiment::engine::Meta;
use steadyvm_experiment::rtca::{self, Configuration, Options, write_output};
use steadyvm_experiment::rtca::{Endpoints, assemble, render};
use steadyvm_lab::artifact::Cache;
use steadyvm_lab::laboratory::{HostKernel, Laboratory, require_root};
use steadyvm_stats::bootstrap::BootstrapOptions;

use crate::kernel::InsteadArgs;
use crate::machine::Beginning;
use crate::markdown::MarkdownArgs;
use crate::methods::without_repeats;
use crate::progress::Display;
use crate::{directory, output, this_program};

/// The experiment's options.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Methods, each as METHOD for the plain path or METHOD:BATCH for at most so many packets (1 to 64) of
    /// one endpoint before a more urgent one is looked at.
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
    /// Counted round trips a method and level of interference, over all rounds.
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
    let own = |it: &Configuration| (it.method, HostKernel::of(it.method));
    let methods = options.configurations.iter().map(own);
    let wanted = args.kernel.wanted(methods)?;
    directory::prepare(&args.out)?;
    require_root()?;
    let display = Display::on_standard_error();
    let beginning = Beginning::now();
    let (cache, program) = (Cache::of_this_machine()?, this_program());
    let logs = args.out.join("logs");
    let mut laboratory = Laboratory::open(&cache, &program, &logs, &wanted, &display)?;
    laboratory.kernel_instead = args.kernel.kernel();
    let measured = rtca::run(&laboratory, &options, &display)?;
    let mut results = assemble(&measured.data, BootstrapOptions::default());
    results.notes.extend(laboratory.note());
    results
        .notes
        .extend(measured.dropped_rounds.iter().cloned());
    results.notes.extend(measured.disturbance.notes());
    let meta = Meta {
        run: beginning.record(
            &laboratory,
            kernels(&laboratory, &options),
            measured.disturbance,
            measured.dropped_rounds.clone(),
        ),
        endpoints: Some(options.endpoints),
        seed: Some(options.seed),
    };
    write_output(&args.out, &measured.data, &results, &meta)?;
    let (title, rendered) = ("RTCA: two VMs while others send", render(&results));
    args.markdown
        .write(title, "configurations", &meta.run, &rendered)?;
    if args.json {
        output::json(&results)?;
    } else {
        output::print(&rendered)?;
        let report = args.out.join("report.html");
        output::line(&format!("\nreport: {}", report.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn kernels(laboratory: &Laboratory, options: &Options) -> BTreeMap<String, String> {
    let title = |kernel| laboratory.kernel_title(kernel);
    let of = |it: &Configuration| (it.to_string(), title(laboratory.kernel_of(it.method)));
    let mut kernels: BTreeMap<String, String> = options.configurations.iter().map(of).collect();
    if options.endpoints == Endpoints::Vms {
        kernels.insert("guests".to_owned(), title(HostKernel::Distribution));
    }
    kernels
}
