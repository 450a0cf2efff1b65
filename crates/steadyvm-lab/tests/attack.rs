//! The verb `load attack` on a pair of devices in a network namespace. Needs root.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use steadyvm_lab::Namespace;
use steadyvm_load::attack::Attacked;

fn namespace() -> Namespace {
    let namespace = Namespace::new().unwrap();
    for words in [
        "link set lo up",
        "link add merging type veth peer name relay",
        "address add 10.77.0.1/24 dev merging",
        "link set merging up",
        "link set relay up",
        "link add idle type veth peer name far",
    ] {
        namespace.ip(words).unwrap();
    }
    namespace
}

fn attack(namespace: &Namespace, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steadyvm-lab"));
    command.args(["load", "attack"]).args(words.split(' '));
    command.stdin(Stdio::null());
    namespace.hold(&mut command).unwrap();
    command
}

fn attacked(namespace: &Namespace, words: &str) -> Attacked {
    let done = attack(namespace, &format!("{words} --json"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{words}: {said}");
    assert_eq!(said, "attacking\n");
    serde_json::from_slice(&done.stdout).unwrap()
}

#[test]
fn every_attack_keeps_its_rate_and_ends_after_its_time() {
    let namespace = namespace();
    let directory = tempfile::tempdir().unwrap();
    let disk = format!("disk --directory {}", directory.path().display());
    for words in [
        "udp-small merging --to 10.77.0.2 --hardware 02:00:00:00:00:02 --port 7700",
        "multicast merging --to 239.1.1.1",
        "multicast merging --to 01:0c:cd:01:00:01",
        "broadcast merging",
        "fragments merging --to 10.77.0.2 --hardware 02:00:00:00:00:02",
        "tcp-connect merging --to 10.77.0.2 --hardware 02:00:00:00:00:02 --from 10.77.0.9",
        "arp merging --to 10.77.0.2",
        "icmp merging --to 10.77.0.2 --hardware 02:00:00:00:00:02",
        "transmit merging --to 02:00:00:00:00:02",
        "transmit merging --to 02:00:00:00:00:02 --bytes 60",
        "doorbells merging",
        "compute --threads 1",
        "timers --threads 1",
        "interrupts --threads 2",
        "sockets --to 127.0.0.1 --sockets 40",
    ] {
        let attacked = attacked(&namespace, &format!("{words} --rate 200 --seconds 1"));
        assert_eq!(attacked.attempted, 200, "{words}: {attacked:?}");
        assert_eq!(attacked.attempted, attacked.sent + attacked.refused);
        assert!(
            (1.0..10.0).contains(&attacked.duration_s),
            "{words}: {attacked:?}"
        );
        let many = words.starts_with("sockets").then_some(40);
        assert_eq!(attacked.sockets, many);
    }
    let attacked = attacked(&namespace, &format!("{disk} --seconds 1"));
    assert!(attacked.sent > 0, "{attacked:?}");
}

#[test]
fn without_a_rate_as_many_go_as_the_kernel_takes_and_a_person_reads_a_line() {
    let namespace = namespace();
    let done = attack(&namespace, "broadcast merging --seconds 1")
        .output()
        .unwrap();
    let line = String::from_utf8(done.stdout).unwrap();
    let words: Vec<&str> = line.split([' ', ',']).collect();
    assert_eq!(words[0], "attempted");
    assert!(words[1].parse::<u64>().unwrap() > 1000, "{line}");
    assert!(line.ends_with(" per second\n"), "{line}");
}

#[test]
fn control_c_ends_it_and_it_tells_what_it_did() {
    let namespace = namespace();
    for words in ["broadcast merging", "compute", "timers --rate 10"] {
        let mut child = attack(&namespace, &format!("{words} --seconds 600 --json"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut begun = String::new();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        said.read_line(&mut begun).unwrap();
        assert_eq!(begun, "attacking\n");
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
        let mut text = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert!(child.wait().unwrap().success());
        let attacked: Attacked = serde_json::from_str(&text).unwrap();
        assert!(attacked.duration_s < 60.0, "{words}: {attacked:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_what_to_do() {
    let namespace = namespace();
    for (words, code, expected) in [
        ("broadcast", 2, "it needs an INTERFACE"),
        ("broadcast absent", 2, "`ip link` lists them"),
        ("broadcast idle", 3, "ip link set idle up"),
        (
            "udp-small merging",
            2,
            "nobody is named; name somebody with --to",
        ),
        (
            "udp-small merging --to 239.1.1.1",
            2,
            "239.1.1.1 is not the address of one machine",
        ),
        (
            "udp-small merging --to 10.77.0.99",
            3,
            "nobody on the interface's network answers for 10.77.0.99",
        ),
        (
            "udp-small merging --to 10.77.0",
            2,
            "write an IPv4 address, such as 10.0.0.3",
        ),
        (
            "udp-small merging --to 10.77.0.2 --hardware 10.77.0.3",
            2,
            "write a hardware address",
        ),
        (
            "multicast merging --to 10.77.0.2",
            2,
            "10.77.0.2 is no multicast address",
        ),
        (
            "multicast merging --to 02:00:00:00:00:02",
            2,
            "give --to a group",
        ),
        (
            "doorbells merging --to 10.77.0.2",
            2,
            "give --to a hardware address",
        ),
        (
            "transmit merging --to 02:00:00:00:00:02 --bytes 9014",
            2,
            "takes no frame of 9014 bytes",
        ),
        (
            "transmit merging --to 02:00:00:00:00:02 --bytes 59",
            2,
            "59 is not in 60..=65000",
        ),
        (
            "icmp merging --to 10.77.0.2 --port 5",
            2,
            "it has no use for --port",
        ),
        ("compute merging", 2, "it has no use for an interface"),
        (
            "broadcast merging --threads 2",
            2,
            "it has no use for --threads",
        ),
        ("interrupts --threads 1", 2, "two threads"),
        ("disk", 2, "it needs --directory DIR"),
        ("disk --directory /absent", 2, "cannot write to /absent"),
        ("console --terminal /dev/null", 2, "it is no terminal"),
        ("sockets", 2, "it needs --to ADDRESS"),
        ("sockets --to 02:00:00:00:00:02", 2, "need an IPv4 address"),
        ("compute --rate 0", 2, "--rate"),
        ("compute --seconds 0", 2, "0 is not in 1.."),
        ("nothing merging", 2, "udp-small"),
    ] {
        let done = attack(&namespace, words).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{words}: {said}");
        assert!(said.contains(expected), "{words}: {said}");
        assert!(done.stdout.is_empty());
    }
}
