//! A plan file as a request of the analysis, on this machine where the file does not say its CPUs.

use std::path::Path;

use steadyvm_analysis::plan::{self, InputError, Measured, Request};
use steadyvm_config::File;
use steadyvm_host::Machine;

use crate::cpus::CpusHere;
use crate::source::DEFAULT_FILE;

/// Reads a plan that says all of its host.
///
/// # Errors
/// What is no plan, with its place.
pub fn of_another_host(file: &Path, text: &str) -> Result<Request, InputError> {
    if is_json(file, text) {
        plan::json::parse(text)
    } else {
        plan::file::parse(text)
    }
}

/// Reads a plan; a host that does not say its CPUs is this one, and costs that the file leaves out are those that were measured. A
/// request in JSON takes none. Beside it what is not so of the file that this host has by itself.
///
/// # Errors
/// What is no plan, with its place.
pub fn of_this_host(
    file: &Path,
    text: &str,
    measured: &Measured,
) -> Result<(Request, Option<String>), InputError> {
    if is_json(file, text) {
        return Ok((plan::json::parse(text)?, None));
    }
    let parsed = File::parse("", text)?;
    let Ok(here) = CpusHere::of(&Machine::real()) else {
        return Ok((plan::file::of_measured(&parsed, None, measured)?, None));
    };
    let numbers = here.numbers();
    let hosts = plan::file::host_cpus(&parsed, &numbers).ok().flatten();
    let lacks = hosts.and_then(|hosts| here.lacks(&hosts));
    let lacks = lacks.filter(|_| file == Path::new(DEFAULT_FILE));
    let request = plan::file::of_measured(&parsed, Some(&numbers), measured)?;
    Ok((request, lacks))
}

/// Whether it is a request in JSON: by its name, or on standard input by its first brace.
pub fn is_json(file: &Path, text: &str) -> bool {
    if file == Path::new("-") {
        text.trim_start().starts_with('{')
    } else {
        file.extension().is_some_and(|it| it == "json")
    }
}
