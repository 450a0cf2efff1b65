//! `steadyvm plan`: what each VM needs, and whether the host can promise it.
//!
//! Data goes to stdout, errors to stderr. Exit codes: 0 feasible, 1 not feasible, 2 bad input.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use steadyvm_analysis::plan;
use steadyvm_calibration::store::{Found, State, Word};
use steadyvm_host::{HostControl, PacketWay, Way, printable};
use steadyvm_site::{Site, Source, calibration, request};

use crate::arguments::{CostArgs, warn_of_refused};

use steadyvm_cli::output::{self, print};

/// The longest input read, bytes.
const MAX_INPUT: u64 = 256 << 20;

/// Compute what each VM needs, where its VCPUs run, and the bounds of its services
///
/// Costs of the host that the file leaves out are those that "steadyvm calibrate" measured, while they are of this kernel and CPU and no
/// older than 90 days. A bound for which nobody says a cost is marked as incomplete, with what is missing.
///
/// Of VMs that run on this host it says which way their packets take, and why: by a function of a shared card, by a card of
/// their own, or behind everybody's.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("many").args(["sweep", "random"]))]
// Each is an option of its own.
#[allow(clippy::struct_excessive_bools)]
pub struct Args {
    /// The plan file (steadyvm.toml, or a request in NAME.json); "-" for either on standard input
    file: PathBuf,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
    /// Say what the figures mean
    #[arg(long)]
    explain: bool,
    /// Also draw the plan into this file
    #[arg(long, value_name = "OUT")]
    svg: Option<PathBuf>,
    /// Plan every value of a field, such as vm.web.period=1ms..10ms/1ms
    #[arg(long, value_name = "FIELD=FROM..TO/STEP", require_equals = true)]
    sweep: Option<String>,
    /// Plan random task sets: FILE says which, and their host (steadyvm.toml(5), "Random task sets")
    #[arg(long, conflicts_with_all = ["sweep", "explain"])]
    random: bool,
    #[command(flatten)]
    costs: CostArgs,
    /// Print a sweep, or what --random found, as comma-separated values
    #[arg(long, requires = "many", conflicts_with = "json")]
    csv: bool,
}

/// Runs the verb.
///
/// # Errors
/// Input that cannot be read or is no plan, output that cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let text = text_at(&args.file)?;
    if args.random {
        if args.costs.is_named() {
            bail!("random task sets have the costs of their file; leave out --calibration");
        }
        return curves(args, &text);
    }
    if let Some(axis) = &args.sweep {
        return sweep(args, &text, axis);
    }
    if plan::cluster::is_cluster(&text) {
        if args.costs.is_named() {
            bail!("a cluster has no calibration of its hosts; leave out --calibration");
        }
        return cluster(args, &text);
    }
    let calibration = calibration_of(args, &text)?;
    let measured = calibration.as_ref().map(calibration::measured);
    let here = request::of_this_host(&args.file, &text, &measured.unwrap_or_default());
    let (request, lacks) = here.with_context(|| place(&args.file))?;
    if let Some(lacks) = lacks {
        output::say(&format!(
            "steadyvm: warning: {}: {lacks}",
            place(&args.file)
        ));
    }
    if let Some(found) = &calibration {
        warn_of_refused(found);
    }
    let report = plan::run(&request).with_context(|| place(&args.file))?;
    draw(args, || plan::svg::render(&report))?;
    let packet_ways = packet_ways(&args.file);
    let text = if args.json {
        json(&OnThisHost {
            report: &report,
            calibration: calibration.as_ref().map(Calibrated::of),
            packet_ways: &packet_ways,
        })?
    } else {
        let lines = packet_ways
            .iter()
            .map(|it| format!("packets of VM {}: {}\n", printable(&it.vm), it.sentence()));
        plan::text::render(&report, args.explain) + &lines.collect::<String>()
    };
    print(&text)?;
    Ok(code(report.feasible))
}

/// A plan, and what this host makes of it.
#[derive(Serialize)]
struct OnThisHost<'a> {
    #[serde(flatten)]
    report: &'a plan::Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    calibration: Option<Calibrated<'a>>,
    packet_ways: &'a [PacketWay],
}

/// Where measured costs are from, and whether they count.
#[derive(Serialize)]
struct Calibrated<'a> {
    file: &'a Path,
    state: Word,
    date: Option<String>,
    why_not: Option<String>,
}

impl<'a> Calibrated<'a> {
    fn of(found: &'a Found) -> Self {
        let date = match &found.state {
            State::Valid(it) | State::Stale(it, _) => Some(steadyvm_calibration::date(it.unix_s)),
            State::Missing | State::Unusable(_) => None,
        };
        Self {
            file: &found.file,
            state: found.word(),
            date,
            why_not: found.refused(),
        }
    }
}

/// The calibration that a plan takes costs from; none for a request in JSON, which says all that counts.
fn calibration_of(args: &Args, text: &str) -> Result<Option<Found>> {
    if !request::is_json(&args.file, text) {
        return args.costs.found().map(Some);
    }
    if args.costs.is_named() {
        bail!("--calibration is for plan files: a request in JSON has its costs in host.overheads");
    }
    Ok(None)
}

/// The ways of the packets of VMs that run here. A plan may be of another host, or nobody's: then there are none.
fn packet_ways(file: &Path) -> Vec<PacketWay> {
    if file == Path::new("-") {
        return Vec::new();
    }
    let control = HostControl::real();
    let site = Site::read(&Source::of(file)).ok();
    let planned = site.and_then(|site| site.plan(&control).ok());
    let ways = planned.map_or_else(Vec::new, |(plan, _)| plan.packet_ways);
    let runs = |packets: &PacketWay| packets.way != Way::NotRunning;
    ways.into_iter().filter(runs).collect()
}

fn code(feasible: bool) -> ExitCode {
    ExitCode::from(u8::from(!feasible))
}

fn draw(args: &Args, picture: impl FnOnce() -> String) -> Result<()> {
    args.svg.as_ref().map_or(Ok(()), |svg| {
        steadyvm_files::write(svg, picture())
            .with_context(|| format!("cannot write the picture {}", svg.display()))
    })
}

/// Exit code 0 if any of the plans holds.
fn sweep(args: &Args, text: &str, axis: &str) -> Result<ExitCode> {
    let axis = plan::sweep::Axis::parse(axis)?;
    let calibration = calibration_of(args, text)?;
    if let Some(found) = &calibration {
        warn_of_refused(found);
    }
    let measured = calibration.as_ref().map(calibration::measured);
    let points = plan::sweep::run(text, &axis, &measured.unwrap_or_default());
    let points = points.with_context(|| place(&args.file))?;
    draw(args, || plan::sweep::svg(&axis, &points))?;
    print(&match (args.json, args.csv) {
        (true, _) => json(&points)?,
        (_, true) => plan::sweep::csv(&axis, &points),
        _ => plan::sweep::text(&axis, &points),
    })?;
    Ok(code(points.iter().any(|point| point.plan.feasible)))
}

fn curves(args: &Args, text: &str) -> Result<ExitCode> {
    let random = plan::random::Random::of(text).with_context(|| place(&args.file))?;
    let curves = plan::random::run(text, &random).with_context(|| place(&args.file))?;
    draw(args, || plan::random::svg(&curves))?;
    print(&match (args.json, args.csv) {
        (true, _) => json(&curves)?,
        (_, true) => plan::random::csv(&curves),
        _ => plan::random::text(&curves),
    })?;
    Ok(code(
        (curves.rows.iter()).any(|row| row.accepted.iter().any(|&sets| sets > 0)),
    ))
}

fn cluster(args: &Args, text: &str) -> Result<ExitCode> {
    if args.svg.is_some() {
        bail!("a cluster has no picture; leave out --svg, or plan one host");
    }
    let report = plan::cluster::run(text).with_context(|| place(&args.file))?;
    print(&if args.json {
        json(&report)?
    } else {
        plan::cluster::render(&report, args.explain)
    })?;
    Ok(code(report.feasible))
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(value).context("cannot write the plan as JSON")? + "\n")
}

fn text_at(file: &Path) -> Result<String> {
    if file == Path::new("-") {
        return text_of(io::stdin().lock()).with_context(|| place(file));
    }
    let opened = fs::File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    text_of(opened).with_context(|| place(file))
}

/// What an error calls the input.
fn place(file: &Path) -> String {
    if file == Path::new("-") {
        "standard input".to_owned()
    } else {
        file.display().to_string()
    }
}

fn text_of(source: impl Read) -> Result<String> {
    let mut bytes = Vec::new();
    source
        .take(MAX_INPUT + 1)
        .read_to_end(&mut bytes)
        .context("cannot be read")?;
    if bytes.len() as u64 > MAX_INPUT {
        bail!("longer than {} MiB; split the plan", MAX_INPUT >> 20);
    }
    String::from_utf8(bytes).context("is not UTF-8 text")
}
