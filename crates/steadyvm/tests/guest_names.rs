//! Names resolve in a guest whose network is `lo` alone: what `modprobe.conf` of the guest's module adds
//! is enough for glibc. Needs root, for a network namespace that stands for the guest's network.

// A test's helper fails by panicking, as the test itself does.
#![allow(clippy::unwrap_used)]

use std::process::Command;

const CONFIGURATION: &str = include_str!("../../../kernel/modules/steadyvm_sockets/modprobe.conf");

/// What a name resolves to for a program that asks for addresses which the machine can use.
const ASK: &str = "import socket as s\n\
    try: print(s.getaddrinfo('localhost', 80, s.AF_INET, s.SOCK_STREAM, 0, s.AI_ADDRCONFIG)[0][4][0])\n\
    except s.gaierror as error: print('none', error.errno)";

/// After these words, in a network that has `lo` alone.
fn resolved_after(words: &str) -> String {
    let script = format!("ip link set lo up; {words}; exec python3 -c \"$0\"");
    let ran = Command::new("unshare")
        .args(["-n", "sh", "-euc", &script, ASK])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{error}");
    String::from_utf8_lossy(&ran.stdout).trim().to_owned()
}

#[test]
fn names_resolve_with_what_the_modules_configuration_adds() {
    let line = CONFIGURATION
        .lines()
        .find(|line| line.starts_with("install steadyvm_sockets "))
        .unwrap();
    let (_, words) = line.split_once(" && ").unwrap();
    // -2 is EAI_NONAME: this is what has to be cured.
    assert_eq!(resolved_after("true"), "none -2");
    assert_eq!(resolved_after(words), "127.0.0.1");
}
