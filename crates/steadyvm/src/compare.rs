//! `steadyvm compare`: the main job.

use crate::directory;
use crate::kernel::InsteadArgs;
use crate::machine::Beginning;
use crate::markdown::MarkdownArgs;
use crate::methods::without_repeats;
use crate::output;
use crate::progress::Display;
use crate::this_program;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use steadyvm_experiment::compare::results::{AssembleOptions, Service, assemble};
use steadyvm_experiment::compare::{self, ComparedMethod, Meta, Options, write_output};
use steadyvm_experiment::compare::{price, table, targets};
use steadyvm_lab::artifact::Cache;
use steadyvm_lab::laboratory::{HostKernel, Laboratory, require_root};

/// Compare how well host methods hold a service's latency next to bulk traffic.
///
/// In an emulated host with real kernels, KVM and two guests: a latency-critical UDP service
/// (NetRT) in one, a TCP stream (NetStream) into the other; or, with --service host, both received
/// by the host itself. Each method has a host of its own;
/// each round measures three phases on each in turn: NetRT alone, NetRT with NetStream at full
/// speed, and NetRT with NetStream at one rate that all methods hold.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Methods to compare; ratios are of each to those before it.
    ///
    /// vanilla, preempt-rt, dedicated, rt-poll-list, rt-profile and rt-levels are those of `steadyvm host`,
    /// with guests run by QEMU. rt-sockets is preempt-rt, no-patch is rt-profile, outsourcing is rt-poll-list,
    /// and steadyvm is rt-levels, which is all of it, with guests run by `steadyvm up` whose sockets are the
    /// host's; preempt-rt-vmm is preempt-rt with guests run by `steadyvm up` that have virtio-net: what the
    /// monitor alone makes of the difference.
    /// rt-process is rt-sockets, but its latency-critical service is a process of the host: what no VM
    /// can beat.
    /// levels-off is preempt-rt on the kernel of rt-poll-list: what levels cost where nobody uses them.
    /// tuned is a peer: the tuned profile realtime-virtual-host and libvirt's real-time domain, on a host that was
    /// booted with a CPU set aside. vf is another: the guest has a virtual function of the host's card by VFIO; in
    /// vf-ranked its interrupt threads have the card's rank.
    /// METHOD@KERNEL is a method on a kernel of your choice, such as preempt-rt@7.3-rt beside preempt-rt@6.12-rt.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "vanilla,preempt-rt,dedicated"
    )]
    methods: Vec<ComparedMethod>,
    /// Where both loads are received.
    #[arg(long, value_enum, default_value_t = Receiver::Vm)]
    service: Receiver,
    /// TCP streams of `NetStream` side by side; its rate is that of all together.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=128))]
    streams: u32,
    /// `NetStream`'s rate in the phase in which all methods carry the same, as goodput of all streams
    /// together. Without it: 0.9 of the slowest method's full speed in the first round. A method that cannot
    /// carry it says so by its traffic.
    #[arg(long, value_name = "MBIT_PER_S")]
    equal_rate: Option<f64>,
    /// Let the real-time methods leave the fair server as it is (docs/design/host-methods.md): as
    /// they were measured before steadyvm bounded it.
    #[arg(long)]
    keep_fair_server: bool,
    /// Counted requests per method and phase, over all rounds.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    samples: u64,
    /// Rounds; more rounds narrow the intervals more than more samples do.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Boots of every host: the rounds are shared out among them, for no boot is quite like another.
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    boots: u64,
    /// Measure every phase once more with `steadyvm explain --receive-path` in the host: adds the
    /// time from hard interrupt to wake-up, and a METHOD.PHASE.ROUND.json each with its causes.
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

/// Where both loads are received, as the command line says it.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Receiver {
    /// NetRT and NetStream in a VM each.
    Vm,
    /// Both by processes of the host itself, without VMs: what its receive path alone does to the
    /// service.
    Host,
    /// `NetRT` by a process in a network namespace, behind a veth and a bridge, as in a container;
    /// `NetStream` by the host itself, without VMs.
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
    directory::prepare(&args.out)?;
    require_root()?;
    let display = Display::on_standard_error();
    let beginning = Beginning::now();
    let program = this_program();
    let cache = Cache::of_this_machine()?;
    let logs = args.out.join("logs");
    let mut laboratory = Laboratory::open(&cache, &program, &logs, &wanted, &display)?;
    laboratory.kernel_words.clone_from(&args.kernel_words);
    laboratory.kernel_instead = args.kernel.kernel();
    let measured = compare::run(&laboratory, &options, &display)?;
    let mut results = assemble(&measured.data, AssembleOptions::default());
    let about_methods = options.methods.iter().filter_map(|method| method.note());
    results.notes.extend(about_methods);
    results.notes.extend(laboratory.note());
    let dropped = measured.dropped_rounds.iter().cloned();
    results.notes.extend(dropped);
    results.notes.extend(measured.disturbance.notes());
    let meta = Meta {
        run: beginning.record(
            &laboratory,
            kernels(&laboratory, &options),
            measured.disturbance,
            measured.dropped_rounds,
        ),
        service: options.service,
        boots: options.boots,
        streams: options.streams,
        seed: options.seed,
        equal_rate_mbit_per_s: measured.equal_rate_mbit_per_s,
    };
    write_output(&args.out, &measured.data, &results, &meta)?;
    let rendered = table::render(&results)
        + &targets::table(&results, &options.methods)
        + &price::table(&options.methods);
    let title = if options.methods.iter().any(|method| method.is_peer()) {
        "Steadyvm's methods and what others use, next to bulk traffic"
    } else {
        "Host methods next to bulk traffic"
    };
    args.markdown
        .write(title, "methods", &meta.run, &rendered)?;
    if args.json {
        print!("{}", results.to_json()?);
    } else {
        print!("{rendered}");
        output::line(&format!(
            "\nreport: {}",
            args.out.join("report.html").display()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn kernels(laboratory: &Laboratory, options: &Options) -> BTreeMap<String, String> {
    let title = |kernel| laboratory.kernel_title(kernel);
    let kernel_of = |method: &ComparedMethod| laboratory.in_place_of(method.kernel);
    let of = |method: &ComparedMethod| (method.to_string(), title(kernel_of(method)));
    let mut kernels: BTreeMap<String, String> = options.methods.iter().map(of).collect();
    if options.service == Service::Vm {
        kernels.insert("guests".to_owned(), title(HostKernel::Distribution));
    }
    kernels
}
