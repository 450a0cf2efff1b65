//! The network profile in an emulated host: what tests of it do again and again.

use serde_json::Value;
use std::path::Path;
use steadyvm_lab::artifact::Cache;
use steadyvm_lab::host::EmulatedHost;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Silent;

pub fn laboratory(logs: &Path, kernel: HostKernel) -> Laboratory {
    let cache = Cache::of_this_machine().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_steadyvm-lab"));
    Laboratory::open(&cache, program, logs, &[kernel], &Silent).unwrap()
}

/// Runs words of a shell in the host; their output.
pub fn inside(host: &EmulatedHost, words: &str) -> String {
    let done = host.connection().text(&["sh", "-euc", words]);
    done.unwrap_or_else(|error| panic!("{words}: {error}"))
}

pub fn write(host: &EmulatedHost, path: &str, text: &str) {
    inside(host, &format!("cat > {path} <<'END'\n{text}\nEND"));
}

pub fn shown(host: &EmulatedHost) -> Value {
    // 1: something does not hold, which the answer says.
    let words = "steadyvm status --json || [ $? = 1 ]";
    serde_json::from_str(&inside(host, words)).unwrap()
}

pub fn all_hold(shown: &Value) -> bool {
    let settings = shown["settings"].as_array().unwrap();
    !settings.is_empty() && settings.iter().all(|setting| setting["holds"] == true)
}

/// Undoes, and checks that all is as it was.
pub fn undo(host: &EmulatedHost) {
    // Of another test's watch it is not to hold.
    inside(host, "steadyvm undo; rm -f /run/steadyvm/host/undone");
    // What differs belongs into the message.
    inside(
        host,
        "steadyvm status --snapshot --compare /run/before.json 1>&2",
    );
    assert_eq!(shown(host)["state"], "none");
}
