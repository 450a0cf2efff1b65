//! Programs of `tests/programs`, built here and put on a host.

use std::process::Command;
use std::time::Duration;
use steadyvm_lab::agent::{Connection, Status};

const PATIENCE: Duration = Duration::from_secs(60);

/// Builds `tests/programs/SOURCE`, which needs no library of the host, and puts it there as `path`.
pub fn install(host: &Connection, source: &str, path: &str) {
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("program");
    let source = format!("{}/tests/programs/{source}", env!("CARGO_MANIFEST_DIR"));
    let built = Command::new("gcc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-static", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    assert!(built.unwrap().success());
    store(host, &std::fs::read(program).unwrap(), path);
    host.text(&["chmod", "+x", path]).unwrap();
}

/// Makes a file on the host.
pub fn store(host: &Connection, content: &[u8], path: &str) {
    let words = ["sh", "-c", "cat > $0", path];
    let store = host.spawn(&words).unwrap();
    store.input(content).unwrap();
    store.end_of_input().unwrap();
    let ended = store.finish(PATIENCE).unwrap();
    assert_eq!(ended.status, Status::Exited(0), "{path}: {ended:?}");
}
