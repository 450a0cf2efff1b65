//! Recordings in files: made on a host, explained anywhere.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use steadyvm_fault::{At, Fault};
use steadyvm_host::HostError;
use steadyvm_trace::Recording;
use steadyvm_trace::receive_path::Setup;

/// The largest file that is read, bytes.
const MOST_BYTES: u64 = 1 << 30;

/// The latest time of an event: sums of times stay far from overflow.
const LATEST_NS: u64 = 1 << 60;

/// Version of this shape.
const SCHEMA_VERSION: u32 = 1;

/// All that an explanation needs.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    schema_version: u32,
    /// Which packets, in words.
    pub packets: String,
    /// How long events were recorded.
    pub duration_s: f64,
    /// What is known of the host.
    pub setup: Setup,
    /// The events.
    pub recording: Recording,
}

impl Recorded {
    /// What was just recorded.
    pub fn new(packets: String, duration_s: f64, setup: Setup, recording: Recording) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            packets,
            duration_s,
            setup,
            recording,
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Fault> {
        let write = || -> io::Result<()> {
            let mut file = BufWriter::new(steadyvm_files::create(path)?);
            serde_json::to_writer(&mut file, self)?;
            file.write_all(b"\n")?;
            file.flush()
        };
        write().at("cannot write the recording", path)
    }

    /// Reads it.
    ///
    /// # Errors
    /// A file that cannot be read, or is no recording.
    pub fn load(path: &Path) -> Result<Self, HostError> {
        let bad = |what: String, fix: &str| HostError::BadInput {
            what: format!("the recording {}: {what}", path.display()),
            fix: fix.into(),
        };
        let made = "name a file that `steadyvm explain --record` has written";
        let read = || -> io::Result<String> {
            if fs::metadata(path)?.len() > MOST_BYTES {
                return Err(io::Error::other("longer than 1 GiB"));
            }
            fs::read_to_string(path)
        };
        let text = read().map_err(|error| bad(error.to_string(), made))?;
        let mut recorded: Self =
            serde_json::from_str(&text).map_err(|error| bad(error.to_string(), made))?;
        if recorded.schema_version != SCHEMA_VERSION {
            let what = format!("it has version {}", recorded.schema_version);
            return Err(bad(
                what,
                "this version of steadyvm reads version 1; record anew",
            ));
        }
        for (_, events) in &mut recorded.recording.cpus {
            if events.iter().any(|event| event.time_ns > LATEST_NS) {
                return Err(bad("an event is later than 2^60 ns".into(), made));
            }
            events.sort_by_key(|event| event.time_ns);
        }
        Ok(recorded)
    }
}
