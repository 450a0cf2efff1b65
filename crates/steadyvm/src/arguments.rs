//! What several verbs take, and how all of them print JSON.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use steadyvm_calibration::store::{Found, State};
use steadyvm_host::DEFAULT_STATE_DIRECTORY;
use steadyvm_site::{Control, DEFAULT_FILE, Source, calibration};

use steadyvm_cli::output;

/// What every verb that changes host state takes.
#[derive(Debug, clap::Args)]
pub struct ControlArgs {
    /// Directory of the journal, which holds every old value until undo.
    #[arg(long, global = true, value_name = "DIR", default_value = DEFAULT_STATE_DIRECTORY)]
    state_dir: PathBuf,
    /// Seconds to wait for another steadyvm that is changing this host.
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 10)]
    wait: u64,
    /// Print JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

impl ControlArgs {
    /// The same for those who do it.
    pub fn control(&self) -> Control {
        Control {
            directory: self.state_dir.clone(),
            patience: Duration::from_secs(self.wait),
        }
    }
}

/// Whose measured costs count, of what plays or plans a file.
#[derive(Debug, clap::Args)]
pub struct CostArgs {
    /// Take the costs of the host from this file of "steadyvm calibrate", whatever kernel and CPU it is of: for a plan of another
    /// host. If left out, those of this host count
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
}

impl CostArgs {
    /// Whether it was named.
    pub const fn is_named(&self) -> bool {
        self.calibration.is_some()
    }

    /// The calibration that counts.
    ///
    /// # Errors
    /// A file that is named and is not there, or cannot be read.
    pub fn found(&self) -> Result<Found> {
        let Some(file) = &self.calibration else {
            return Ok(calibration::of_this_host());
        };
        let found = calibration::of_another_host(file);
        if found.state == State::Missing {
            bail!(
                "there is no {}; write it with `steadyvm calibrate --out {0}` on the host that the plan is for",
                file.display()
            );
        }
        // Of another time it is said, and the plan is made; what cannot be read is wrong input.
        if let (State::Unusable(_), Some(refused)) = (&found.state, found.refused()) {
            bail!("{refused}");
        }
        Ok(found)
    }
}

/// Says why a calibration does not count.
pub fn warn_of_refused(found: &Found) {
    if let Some(refused) = found.refused() {
        output::say(&format!("steadyvm: warning: {refused}"));
    }
}

/// The file, and what only the caller knows of it.
#[derive(Debug, clap::Args)]
pub struct FileArgs {
    /// The file that describes this host; "-" for standard input. Left out: /etc/steadyvm.toml.
    file: Option<PathBuf>,
    /// All or nothing: refuse a plan that this host cannot hold, and change nothing if a VM, a card or a file cannot be
    /// served.
    ///
    /// Without it the failures are listed, and the others are served.
    #[arg(long)]
    strict: bool,
    /// The process of a VM's monitor, where its command line does not name it (-name); may
    /// be repeated.
    #[arg(long = "vm", value_name = "NAME=PID", value_parser = named_process)]
    vms: Vec<(String, u32)>,
}

impl FileArgs {
    /// Whether it was named.
    pub fn is_named(&self) -> bool {
        self.file.is_some()
    }

    /// The same for those who read it.
    pub fn source(&self) -> Source {
        Source {
            file: self.file.clone().unwrap_or_else(|| DEFAULT_FILE.into()),
            is_strict: self.strict,
            processes: self.vms.clone(),
        }
    }
}

/// Reads NAME=PID.
pub fn named_process(text: &str) -> Result<(String, u32), String> {
    text.split_once('=')
        .and_then(|(name, pid)| Some((name.to_owned(), pid.parse().ok().filter(|&pid| pid > 0)?)))
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| "write NAME=PID, as in game-1=4711".to_owned())
}

/// Reads NAME=NUMBER.
pub fn named(text: &str) -> Result<(String, u32), String> {
    let (name, number) = text.split_once('=').ok_or("write NAME=NUMBER")?;
    let number = number
        .parse()
        .map_err(|error| format!("{number}: {error}"))?;
    Ok((name.to_owned(), number))
}

/// Adds the version that every JSON output carries.
#[derive(Serialize)]
struct Versioned<'a, T> {
    schema_version: u32,
    #[serde(flatten)]
    content: &'a T,
}

/// Prints JSON with its version.
pub fn print_json<T: Serialize>(content: &T) -> Result<()> {
    output::json(&Versioned {
        schema_version: 1,
        content,
    })
}
