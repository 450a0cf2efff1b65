//! The JSON interface, for other tools: what [`super::file`] reads, with `"vms"` and `"services"` for lists.
//!
//! Times are integers of one unit of the caller's; with `"unit": "ns"` nanoseconds, and then the plan says what
//! to install. Schema: `request.schema.json` of this crate.

use steadyvm_config::words;

use super::{
    InputError, InterfaceName, Measured, Period, Request, SchedulerName, TaskNeeds, Unit,
    file::{places::Places, request},
    report::SCHEMA_VERSION,
};

/// Reads a request.
///
/// # Errors
/// What is not as described above, with its line and column and the field's path.
pub fn parse(text: &str) -> Result<Request, InputError> {
    parse_measured(text, &Measured::default())
}

/// The same; costs that it leaves out are those that were measured on its host.
pub(super) fn parse_measured(text: &str, measured: &Measured) -> Result<Request, InputError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read: steadyvm_config::Request = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| {
            let path = error.path().to_string();
            at(error.inner(), if path == "." { "" } else { &path })
        })?;
    deserializer.end().map_err(|error| at(&error, ""))?;
    if (read.schema_version).is_some_and(|version| version != SCHEMA_VERSION) {
        let message = "this version of steadyvm reads version 1";
        return Err(InputError::new("schema_version", message));
    }
    let unit = match read.unit {
        Some(_) => Unit::Nanosecond,
        None => Unit::Callers,
    };
    request(&read.into_file(), &Places::Paths, unit, None, measured)
}

fn at(error: &serde_json::Error, path: &str) -> InputError {
    let line = format!("line {} column {}", error.line(), error.column());
    let message = error.to_string();
    let message = message
        .strip_suffix(&format!(" at {line}"))
        .unwrap_or(&message);
    let place = if path.is_empty() {
        line
    } else {
        format!("{line}, {path}")
    };
    InputError::new(place, words(message))
}

impl TaskNeeds {
    /// Settings that do not go together.
    pub(super) fn check(&self) -> Result<(), String> {
        let partitioned = self.scheduler == SchedulerName::Pedf;
        if let (InterfaceName::Prm, Some(vcpus @ 2..), false) =
            (self.interface, self.vcpus, partitioned)
        {
            return Err(format!(
                "interface \"prm\" is one VCPU, but vcpus is {vcpus}; use \"mpr\" or \"dmpr\", or \
                 scheduler \"pedf\", or leave vcpus out"
            ));
        }
        let spread = self.interface == InterfaceName::Dmpr
            || (self.interface == InterfaceName::Prm && partitioned);
        if self.budget.is_some() && spread {
            return Err(
                "a total budget can be given for \"mpr\", and for \"prm\" on one VCPU; leave \
                        budget out to have it computed"
                    .to_owned(),
            );
        }
        let one = matches!(
            self.interface,
            InterfaceName::Reservation | InterfaceName::Best
        );
        if one && (self.budget.is_some() || self.vcpus.is_some_and(|vcpus| vcpus > 1)) {
            return Err(
                "interfaces \"reservation\" and \"best\" are one VCPU whose budget is computed; \
                        leave vcpus and budget out, or use \"mpr\", \"dmpr\" or a \"pedf\" guest"
                    .to_owned(),
            );
        }
        if self.budget.is_some() && !matches!(self.period, Period::Fixed(_)) {
            return Err("a budget belongs to one period; give period one value".to_owned());
        }
        Ok(())
    }
}
