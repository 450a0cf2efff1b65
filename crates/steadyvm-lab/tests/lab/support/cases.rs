//! The cases of the guest's module (`kernel/modules/steadyvm_sockets/tests`): built, run on the host's own
//! stack, compared.

use crate::support::outsourced::{Guest, Lab, softirqs};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MODULE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../kernel/modules/steadyvm_sockets"
);
/// What a guest does with the cases. What its own stack would have counted is nothing; the module
/// leaves when asked to.
pub const RUN_CASES: &str =
    "/cases\ncat /proc/softirqs\nsleep 1\nrmmod steadyvm_sockets && echo unloaded";

/// The program that runs every case.
pub fn build_cases(lab: &Lab) -> PathBuf {
    let files = fs::read_dir(Path::new(MODULE).join("tests")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let sources = files.filter(|file| file.extension() == Some("c".as_ref()));
    let cases = lab.place.join("cases");
    let built = Command::new("gcc")
        .args(["-O1", "-static", "-pthread", "-o"])
        .arg(&cases)
        .args(sources)
        .arg("-luring")
        .status();
    assert!(built.unwrap().success());
    cases
}

/// What the cases print on the host's own stack.
pub fn expected(lab: &Lab, cases: &Path) -> String {
    lab.upload(cases, "/tmp/cases");
    let words = "ip link set lo up; /tmp/cases";
    let host = lab.host.connection();
    let said = host.text(&["unshare", "-n", "sh", "-euc", words]).unwrap();
    assert!(results(&said).len() > 50, "{said}");
    assert!(
        !said.contains("KILLED") && !said.contains("FAILED"),
        "{said}"
    );
    said
}

/// A guest with so many VCPUs and a network of its own.
pub fn guest(vcpus: u32) -> Guest {
    Guest {
        vcpus,
        memory_mib: 256,
        namespace: "new",
    }
}

/// What must hold of the console of a guest that ran them.
pub fn check(console: &str, expected: &str) {
    assert_eq!(results(console), results(expected), "{console}");
    assert_eq!(softirqs(console, "NET_RX:").iter().sum::<u64>(), 0);
    assert!(console.contains("unloaded"), "{console}");
    assert!(!console.contains("Call Trace"), "{console}");
}

fn results(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| line.starts_with("case "))
        .collect()
}
