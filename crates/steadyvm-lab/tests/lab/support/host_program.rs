//! The program of hosts, which `make build` puts beside the lab's.

use std::path::PathBuf;

/// Where it is.
pub fn host_program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_steadyvm-lab")).with_file_name("steadyvm")
}
