//! `steadyvm measure` on this machine, without the lab: in mounts and namespaces of its own, where the one setting is a file
//! that stands in for a sysctl of the kernel. Needs root, as unshare(1) and `ip netns` do.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

use std::process::{Command, Stdio};

/// Mounts of its own, with an own /run, and two network namespaces. `$S` is the program, `setting` prints what is in force: 300 is
/// what was there before, 64 what the file wants.
const PLACE: &str = r#"
set -eu
mount -t tmpfs none /run
mkdir -p /run/steadyvm && chmod 755 /run/steadyvm
echo 300 > /run/budget
mount --bind /run/budget /proc/sys/net/core/netdev_budget
setting() { echo $(< /proc/sys/net/core/netdev_budget); }
ip netns add server && ip netns add client
ip link add name eth0 netns server type veth peer name eth0 netns client
ip -n server address add 10.99.7.1/24 dev eth0 && ip -n server link set eth0 up
ip -n client address add 10.99.7.2/24 dev eth0 && ip -n client link set eth0 up
printf '[net]\nbudget_packets = 64\n' > /run/site.toml
MEASURE=(measure --service 10.99.7.1:7700 --netns client --rate 500 --warmup 5 --out /run/out)
serve() {
  mkfifo /run/served
  ip netns exec server "$S" netrt serve 10.99.7.1:7700 > /run/served &
  read -r _ < /run/served
}
"#;

/// What a script prints there; it must end well.
fn printed(script: &str) -> String {
    let done = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["bash", "-c", &format!("{PLACE}{script}")])
        .env("S", env!("CARGO_BIN_EXE_steadyvm"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}\n{error}");
    said
}

#[test]
fn a_service_is_measured_both_ways_and_has_a_report() {
    let said = printed(
        "serve; \"$S\" apply /run/site.toml >&2; \"$S\" \"${MEASURE[@]}\" --rounds 3 --samples 30 --markdown /run/page.md; setting
         ls /run/out; grep -c '^without,3,netrt_idle' /run/out/samples.csv; grep -c 'round trips' /run/page.md",
    );
    let row = |name: &str| {
        said.lines()
            .any(|line| line.trim().starts_with(&format!("{name} ")))
    };
    assert!(
        row("without") && row("with") && said.contains("with / without"),
        "{said}"
    );
    let rest: Vec<&str> = said.lines().skip_while(|line| *line != "64").collect();
    let files = "figures.csv meta.json report.html results.json samples.csv with.hgrm without.hgrm";
    assert_eq!(rest[..8].join(" "), format!("64 {files}"), "{said}");
    assert_eq!(
        rest[8], "10",
        "a third of the samples are of the third round: {said}"
    );
}

#[test]
fn what_was_in_force_is_again_after_every_signal() {
    let said = printed(
        "serve; \"$S\" apply /run/site.toml >&2
         for signal in INT TERM HUP KILL; do
           \"$S\" \"${MEASURE[@]}\" --rounds 2 --samples 1000000 > /run/said 2>&1 & run=$!
           until [ \"$(setting)\" = 300 ]; do :; done
           kill -$signal $run; code=0; wait $run || code=$?
           flock /run/steadyvm/host/measure.lock true
           while pgrep -f 'netrt clien[t]|restore-at-en[d]' > /run/left; do :; done
           echo $signal $code $(setting)
         done",
    );
    let expected = "INT 130 64\nTERM 143 64\nHUP 129 64\nKILL 137 64\n";
    assert_eq!(said, expected);
}

#[test]
fn what_was_not_in_force_is_not_afterwards_and_nothing_is_changed_in_vain() {
    let said = printed(
        "code=0; \"$S\" \"${MEASURE[@]}\" 2>&1 || code=$?; echo $code $(setting)
         \"$S\" apply /run/site.toml >&2
         code=0; \"$S\" \"${MEASURE[@]}\" > /run/said 2>&1 || code=$?; echo $code $(setting)
         \"$S\" undo >&2; serve
         \"$S\" \"${MEASURE[@]}\" --rounds 2 --samples 4 --file /run/site.toml > /run/said 2>&1; echo by file $(setting)",
    );
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].contains("nothing is in force"), "{said}");
    assert_eq!(lines[1..], ["2 300", "3 64", "by file 300"], "{said}");
}

#[test]
fn a_watch_keeps_off_meanwhile_and_status_tells_what_it_mended() {
    let said = printed(
        "serve; \"$S\" watch /run/site.toml 2> /run/watched & watch=$!
         until [ \"$(setting)\" = 64 ]; do :; done
         \"$S\" \"${MEASURE[@]}\" --rounds 2 --samples 30 > /run/said 2>&1; setting
         grep -o '\"watch\": true' /run/out/meta.json
         echo 99 > /proc/sys/net/core/netdev_budget
         kill -HUP $watch
         until [ \"$(setting)\" = 64 ] && [ -e /run/steadyvm/host/drift.json ]; do :; done
         \"$S\" status /run/site.toml; kill $watch",
    );
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["64", "\"watch\": true"], "{said}");
    assert!(said.contains("a watch set or mended 1 settings"), "{said}");
}
