//! Real, unmodified programs from Debian's packages on outsourced sockets, in the emulated host. As
//! `tests/lab/sockets.rs`.

use crate::support::outsourced::{Guest, Lab, PATIENCE, softirqs};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use steadyvm_lab::host::RT;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");
const GUEST: Guest = Guest {
    vcpus: 2,
    memory_mib: 512,
    namespace: "current",
};

/// What servers and clients need: where it stands in their machines.
struct Programs(BTreeMap<String, PathBuf>);

impl Programs {
    /// The scripts, keys for ssh, and a file of data that does not compress.
    fn of(lab: &Lab) -> Self {
        let mut files: Vec<PathBuf> = fs::read_dir(SCRIPTS)
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        for name in ["host-key", "user-key"] {
            let key = lab.place.join(name);
            let mut make = Command::new("ssh-keygen");
            make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key);
            assert!(make.status().unwrap().success());
            files.push(key.with_extension("pub"));
            files.push(key);
        }
        let big = lab.place.join("big");
        fs::write(&big, bytes(4 << 20)).unwrap();
        files.push(big);
        let place = |file: &PathBuf| format!("/programs/{}", file.file_name().unwrap().display());
        Self(files.into_iter().map(|file| (place(&file), file)).collect())
    }

    fn files(&self) -> Vec<(&str, &Path)> {
        let files = self.0.iter();
        files
            .map(|(place, file)| (place.as_str(), file.as_path()))
            .collect()
    }
}

/// Bytes of which no two places look alike: splitmix64's.
fn bytes(len: usize) -> Vec<u8> {
    let word = |index: u64| {
        let mut z = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    };
    (1..=len as u64 / 8).flat_map(word).collect()
}

fn digest(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// Checks every fact that clients.sh has said.
fn check(said: &str) {
    let facts: BTreeMap<&str, &str> = said
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, fact)| (name, fact.trim()))
        .collect();
    let fact = |name: &str| {
        *facts
            .get(name)
            .unwrap_or_else(|| panic!("no {name}: {said}"))
    };
    let (big, value) = (bytes(4 << 20), bytes(900_000));
    let whole = digest(&big);
    for (name, expected) in [
        // Its client asks for a command's count before it has set the big value.
        ("redis set", "1000"),
        ("redis incr", "1000"),
        ("redis lpush", "1000"),
        ("redis lpop", "1000"),
        ("redis get", "2000"),
        ("redis counter", "1000"),
        ("redis list", "0"),
        ("redis big", &whole),
        ("memcached value", &digest(&value)),
        ("memcached cmd_set", "401"),
        ("memcached get_hits", "1"),
        ("nginx big", &whole),
        ("go hey", "[200] 300 responses"),
        ("go big", &whole),
        ("go part", &digest(&big[1000..2000])),
        ("dns address", "192.0.2.7 2001:db8::7"),
        ("dns over tcp", "192.0.2.7"),
        ("dns reverse", "name.example."),
        // In quotes, with a space behind.
        ("dns text", "203"),
        ("dns unknown", "NXDOMAIN"),
        ("ssh there", &whole),
        ("ssh back", &whole),
        ("ssh exit", "7"),
    ] {
        assert_eq!(fact(name), expected, "{name}: {said}");
    }
    // "1234 requests in 2.01s, 0.40MB read", and no line about errors.
    let counted: Vec<&str> = said
        .lines()
        .skip_while(|line| !line.starts_with("nginx wrk: "))
        .take_while(|line| !line.starts_with("nginx big: "))
        .collect();
    let [counted] = counted[..] else {
        panic!("{counted:?}")
    };
    let counted = counted.split_whitespace().nth(2).unwrap();
    let answered: u64 = fact("nginx requests").parse().unwrap();
    let requests: u64 = counted.parse().unwrap();
    assert!(requests > 100, "{said}");
    // Those that wrk no longer waited for, one a connection; the file, and this question.
    assert!((requests + 2..=requests + 12).contains(&answered), "{said}");
    assert!(said.lines().any(|line| line == "all asked"), "{said}");
}

/// No part of the guest's own stack had work, and its kernel no complaint.
fn check_guest(console: &str) {
    assert_eq!(softirqs(console, "NET_RX:").iter().sum::<u64>(), 0);
    assert!(!console.contains("Call Trace"), "{console}");
}

#[test]
#[ignore = "needs the lab: make program-tests"]
fn servers_in_a_guest_serve_clients_outside() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let lab = Lab::boot_with_programs("servers", logs);
    let programs = Programs::of(&lab);
    // dnsmasq refuses TCP on addresses that no interface has: the guest's has the host's.
    let script = format!(
        "ip address add {}/32 dev lo; ip link set lo up\n\
     . /programs/servers.sh\nwait $redis\ncat /proc/softirqs",
        RT.host()
    );
    lab.upload_guest(&script, &programs.files());
    let mut guest = lab.start_guest(GUEST);
    guest.wait_for_line("servers are up", PATIENCE).unwrap();

    let mut clients = Command::new("sh");
    clients
        .arg(Path::new(SCRIPTS).join("clients.sh"))
        .arg(RT.host().to_string());
    let said = lab.outside(clients.current_dir(&lab.place));
    check(&said);
    let done = guest.finish(PATIENCE).unwrap();
    check_guest(&done.text().replace('\r', ""));
}

#[test]
#[ignore = "needs the lab: make program-tests"]
fn clients_in_a_guest_are_served_by_the_host() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let lab = Lab::boot_with_programs("clients", logs);
    let programs = Programs::of(&lab);
    lab.host.connection().run(&["mkdir", "/programs"]).unwrap();
    for (place, file) in programs.files() {
        lab.upload(file, place);
    }
    lab.host.ip("link set lo up").unwrap();
    let servers = ". /programs/servers.sh; wait $redis";
    let mut servers = lab.host.connection().spawn(&["sh", "-c", servers]).unwrap();
    servers.wait_for_line("servers are up", PATIENCE).unwrap();

    let script = format!(
        "cp /programs/passwd /programs/group /etc/; cd /programs; sh clients.sh {}; cat /proc/softirqs",
        RT.host()
    );
    lab.upload_guest(&script, &programs.files());
    let console = lab.run_guest("/boot/guest-kernel", GUEST, PATIENCE);
    check(&console);
    check_guest(&console);
}
