//! A file of one's own, put in force whole or not at all, as a user calls it. What sets something of this machine says so, and
//! gives it back.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

fn steadyvm(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_steadyvm"))
        .args(arguments)
        .arg(format!("--state-dir={}", directory.join("state").display()))
        .current_dir(directory)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_place_and_ends_with_2() {
    let directory = tempfile::tempdir().unwrap();
    for (text, expected) in [
        (
            "[class.rt]\nirq = 99\n",
            "steadyvm.toml line 2 column 7: priority 99",
        ),
        (
            "[neet]\n",
            "steadyvm.toml line 1 column 2: unknown field `neet`",
        ),
        (
            "[class.rt]\nirq = 85\n[[nic]]\nname = \"no-such-nic\"\nclass = \"rt\"\n",
            "steadyvm.toml line 3 column 1: there is no network interface `no-such-nic`",
        ),
    ] {
        fs::write(directory.path().join("steadyvm.toml"), text).unwrap();
        for more in [&[][..], &["--dry-run"]] {
            let arguments = [&["apply", "--strict", "steadyvm.toml"], more].concat();
            let output = steadyvm(directory.path(), &arguments);
            assert_eq!(output.status.code(), Some(2), "{}", said(&output));
            assert!(said(&output).contains(expected), "{}", said(&output));
            assert!(output.stdout.is_empty());
        }
    }
}

#[test]
fn a_missing_file_a_wrong_vm_and_wrong_use_end_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let output = steadyvm(directory.path(), &["apply", "absent.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("absent.toml"), "{}", said(&output));
    fs::write(
        directory.path().join("steadyvm.toml"),
        "[net]\nbudget_packets = 64\n",
    )
    .unwrap();
    let arguments = ["apply", "--dry-run", "steadyvm.toml", "--vm", "game=1"];
    let output = steadyvm(directory.path(), &arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("no VM \"game\""),
        "{}",
        said(&output)
    );
    for arguments in [
        &["apply", "steadyvm.toml", "--vm", "x"][..],
        &["apply", "steadyvm.toml", "--vm", "x=0"],
        &["status", "steadyvm.toml", "--vm", "x"],
        &["nothing"],
        &[],
    ] {
        assert_eq!(
            steadyvm(directory.path(), arguments).status.code(),
            Some(2),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_dry_run_says_what_would_be_changed_and_changes_nothing() {
    let _alone = BUDGETS.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let path = "/proc/sys/net/core/netdev_budget";
    let before = fs::read_to_string(path).unwrap();
    let other = before.trim().parse::<u32>().unwrap() + 1;
    let text = format!("[net]\nbudget_packets = {other}\n");
    fs::write(directory.path().join("steadyvm.toml"), text).unwrap();
    let arguments = ["apply", "--strict", "--dry-run", "--json", "steadyvm.toml"];
    let output = steadyvm(directory.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["schema_version"], 1);
    assert_eq!(plan["steps"][0]["path"], path);
    assert_eq!(plan["steps"][0]["new"], other.to_string());
    assert_eq!(fs::read_to_string(path).unwrap(), before);
    let said = steadyvm(directory.path(), &["apply", "--dry-run", "steadyvm.toml"]);
    let said = String::from_utf8(said.stdout).unwrap();
    let words = "\n1 settings would change, 0 would be restored; nothing was changed\n";
    assert!(said.ends_with(words), "{said}");
    let shown = steadyvm(directory.path(), &["status", "--json", "steadyvm.toml"]);
    assert_eq!(
        shown.status.code(),
        Some(1),
        "what the file wants is missing"
    );
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["state"], "none");
}

#[test]
fn status_and_undo_of_nothing_are_no_errors() {
    let directory = tempfile::tempdir().unwrap();
    let shown = steadyvm(directory.path(), &["status"]);
    assert_eq!(
        String::from_utf8(shown.stdout).unwrap(),
        "nothing is in force: run `steadyvm apply`\n"
    );
    assert_eq!(shown.status.code(), Some(0));
    assert_eq!(steadyvm(directory.path(), &["undo"]).status.code(), Some(0));
}

/// Budgets of the receive softirq in force.
fn budgets() -> (String, String) {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap();
    (read("netdev_budget"), read("netdev_budget_usecs"))
}

/// Held by the tests that set budgets of this machine.
static BUDGETS: Mutex<()> = Mutex::new(());

/// Gives the machine its own budgets back, whatever became of the test.
struct Budgets((String, String));

impl Drop for Budgets {
    fn drop(&mut self) {
        let _ = fs::write("/proc/sys/net/core/netdev_budget", &self.0.0);
        let _ = fs::write("/proc/sys/net/core/netdev_budget_usecs", &self.0.1);
    }
}

/// Runs a script in a mount namespace with a /run of its own, and so a lock of its own: what it printed
/// and what it complained of; none where this user may not mount.
fn in_own_mounts(directory: &Path, script: &str) -> Option<(String, String)> {
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c"])
        .arg(format!(
            "mount -t tmpfs none /run || {{ echo skipped; exit; }}\n{script}"
        ))
        .env("STEADYVM", env!("CARGO_BIN_EXE_steadyvm"))
        .current_dir(directory)
        .output()
        .unwrap();
    let (text, errors) = (
        String::from_utf8(output.stdout.clone()).unwrap(),
        said(&output),
    );
    if (!output.status.success() && text.is_empty()) || text == "skipped\n" {
        eprintln!("skipped: this user may not mount: {errors}");
        return None;
    }
    Some((text, errors))
}

/// A second apply that meets a full disk, or is killed while it writes its journal, keeps what the
/// first recorded. It sets two budgets of this machine for a moment.
#[test]
fn a_full_disk_and_a_kill_while_the_journal_is_written_lose_nothing() {
    const SCRIPT: &str = r#"
        mkdir /run/small
        mount -t tmpfs -o size=16k none /run/small
        s() { "$STEADYVM" "$@" --state-dir /run/small/state; }
        show() { cat /proc/sys/net/core/netdev_budget /proc/sys/net/core/netdev_budget_usecs | xargs; }
        s apply --strict one.toml > out || exit 10
        show
        cat /dev/zero > /run/small/fill 2> errors
        s apply --strict two.toml > out 2> errors; echo full $?
        show
        rm /run/small/fill
        (ulimit -f 0; s apply --strict two.toml) > out 2> killed; echo killed $?
        show
        cat /dev/zero > /run/small/fill 2> out
        s undo > out; echo undone $?
        show
    "#;
    let directory = tempfile::tempdir().unwrap();
    let _alone = BUDGETS.lock().unwrap_or_else(PoisonError::into_inner);
    let (packets, time_us) = budgets();
    let numbers = |text: &str| text.trim().parse::<u32>().unwrap();
    let (packets, time_us) = (numbers(&packets), numbers(&time_us));
    let _guard = Budgets(budgets());
    for (name, more) in [("one.toml", 1), ("two.toml", 2)] {
        let text = format!(
            "[net]\nbudget_packets = {}\nbudget_time = \"{}us\"\n",
            packets + more,
            time_us + 1000 * more
        );
        fs::write(directory.path().join(name), text).unwrap();
    }
    let Some((text, errors)) = in_own_mounts(directory.path(), SCRIPT) else {
        return;
    };
    let (one, old) = (
        format!("{} {}", packets + 1, time_us + 1000),
        format!("{packets} {time_us}"),
    );
    let killed = text
        .lines()
        .find(|line| line.starts_with("killed"))
        .unwrap();
    assert_ne!(killed, "killed 0", "{text}");
    let expected = format!("{one}\nfull 3\n{one}\n{killed}\n{one}\nundone 0\n{old}\n");
    assert_eq!(text, expected, "{errors}");
    let told = fs::read_to_string(directory.path().join("errors")).unwrap();
    assert!(
        told.contains("journal") && told.contains("free some space"),
        "{told}"
    );
}

#[test]
fn drift_ends_status_with_1() {
    const SCRIPT: &str = r#"
        "$STEADYVM" apply --strict one.toml > out || exit 10
        "$STEADYVM" status one.toml > out; echo $?
        cat /proc/sys/net/core/netdev_max_backlog > /proc/sys/net/core/netdev_budget
        "$STEADYVM" status one.toml > out; echo $?
        "$STEADYVM" apply --method preempt-rt --nic lo --process $$ 2> told; echo $?
        "$STEADYVM" undo > out; echo $?
        "$STEADYVM" status > out; echo $?
    "#;
    let directory = tempfile::tempdir().unwrap();
    let _alone = BUDGETS.lock().unwrap_or_else(PoisonError::into_inner);
    let _guard = Budgets(budgets());
    let other = budgets().0.trim().parse::<u32>().unwrap() + 3;
    let text = format!("[net]\nbudget_packets = {other}\n");
    fs::write(directory.path().join("one.toml"), text).unwrap();
    let Some((text, errors)) = in_own_mounts(directory.path(), SCRIPT) else {
        return;
    };
    let lines: Vec<&str> = text.lines().collect();
    // Without PREEMPT_RT the method is refused for that, and with it for what is in force.
    assert!(["2", "3"].contains(&lines[2]), "{text} {errors}");
    assert_eq!(
        [lines[0], lines[1], lines[3], lines[4]],
        ["0", "1", "0", "0"],
        "{text}"
    );
}

#[test]
fn a_lock_that_is_held_is_waited_for_and_named() {
    const SCRIPT: &str = r#"
        mkdir -m 700 /run/steadyvm
        exec 9> /run/steadyvm/lock; flock 9
        "$STEADYVM" undo --wait 0 --state-dir /run/elsewhere 2> told; echo $?
        "$STEADYVM" undo --wait 60 --state-dir /run/elsewhere 9>&- > out & waiter=$!
        flock -u 9
        wait $waiter; echo $?
    "#;
    let directory = tempfile::tempdir().unwrap();
    let Some((text, errors)) = in_own_mounts(directory.path(), SCRIPT) else {
        return;
    };
    assert_eq!(text, "3\n0\n", "{errors}");
    let told = fs::read_to_string(directory.path().join("told")).unwrap();
    assert!(
        told.contains("/run/steadyvm/lock") && told.contains("--wait"),
        "{told}"
    );
}
