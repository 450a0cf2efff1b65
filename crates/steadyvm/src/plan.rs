//! `steadyvm plan`: what each VM needs, and whether the host can promise it.
//!
//! Data goes to stdout, errors to stderr. Exit codes: 0 feasible, 1 not feasible, 2 bad input.

use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use steadyvm_analysis::plan::{self, Report, Request};

/// The longest input read, bytes.
const MAX_INPUT: u64 = 256 << 20;

/// Computes what each VM needs, where its VCPUs run, and the bounds of its services
#[derive(clap::Args)]
pub struct Args {
    /// The plan file (steadyvm.toml), or "-" for a JSON request on standard input
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
}

/// Runs the verb.
///
/// # Errors
/// Input that cannot be read or is no plan, output that cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let request = read(&args.file)?;
    let report = plan::run(&request).with_context(|| place(&args.file))?;
    if let Some(svg) = &args.svg {
        fs::write(svg, plan::svg::render(&report))
            .with_context(|| format!("cannot write the picture {}", svg.display()))?;
    }
    print(&report, args)?;
    Ok(if report.feasible {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn read(file: &Path) -> Result<Request> {
    let from_stdin = file == Path::new("-");
    let text = if from_stdin {
        text_of(io::stdin().lock()).with_context(|| place(file))?
    } else {
        let opened =
            fs::File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
        text_of(opened).with_context(|| place(file))?
    };
    let is_json = from_stdin
        || file
            .extension()
            .is_some_and(|extension| extension == "json");
    if is_json {
        plan::json::parse(&text).with_context(|| place(file))
    } else {
        plan::file::parse(&text).with_context(|| place(file))
    }
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

fn print(report: &Report, args: &Args) -> Result<()> {
    let text = if args.json {
        serde_json::to_string_pretty(report).context("cannot write the plan as JSON")? + "\n"
    } else {
        plan::text::render(report, args.explain)
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // A reader that has seen enough is no error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}
