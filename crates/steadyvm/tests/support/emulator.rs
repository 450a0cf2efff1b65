//! Tests that boot nested guests survive a failing emulator, and nothing else.

use std::any::Any;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

/// Under stress 6 of 91 starts failed (docs/design/lab.md): three in a row by chance is rare.
const ATTEMPTS: usize = 3;

/// How the end of a machine shows: of the host, and of a guest as its monitor says it.
const ENDS: [&str; 2] = ["its control channel ended", "triple fault"];

/// What a kernel says that has found a fault itself.
const COMPLAINTS: [&str; 5] = ["Kernel panic", "Call Trace", "BUG:", "Oops", "WARNING:"];

/// Runs a test with a directory for its logs. Under TCG an emulated machine now and then ends with
/// no word of its kernel. Only then the test begins again, from nothing, and says so; what a
/// kernel complained of or a check found fails it at once.
pub fn on_an_emulated_host(test: impl Fn(&Path)) {
    for attempt in 1.. {
        let logs = tempfile::tempdir().unwrap();
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(logs.path()))) else {
            return;
        };
        if attempt == ATTEMPTS || !emulator_failed(&message(&*panic), logs.path()) {
            resume_unwind(panic);
        }
        say("an emulated machine ended with no word of its kernel; the test begins again");
    }
}

/// Tells whoever runs the tests, also where the test passes in the end: what `eprintln!` writes is then
/// thrown away.
pub fn say(what: &str) {
    // A note that cannot be written fails no test.
    let _ = writeln!(std::io::stderr(), "note: {what}");
}

/// Whether a kernel says in this text that it has found a fault.
pub fn complains(text: &str) -> bool {
    COMPLAINTS.iter().any(|it| text.contains(it))
}

fn emulator_failed(message: &str, logs: &Path) -> bool {
    let consoles = fs::read_dir(logs).unwrap().map(|file| {
        let file = file.unwrap().path();
        String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
    });
    let said: String = consoles.chain([message.to_owned()]).collect();
    ENDS.iter().any(|end| message.contains(end)) && !complains(&said)
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}
